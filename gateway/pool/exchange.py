"""One connection to a worker, and what comes back on it: HTTP/1.1 by llhttp, as our own server reads it.

Why not aiohttp's client, which asks everything else of a worker: docs/decisions/007.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable
from typing import Any, cast

import httptools

MAX_HEAD_BYTES = 64 * 1024
HIGH_WATER_BYTES = 128 * 1024
"""Of an answer that nobody reads yet; the worker has to wait then."""
MAX_INFLATED_BYTES = 16 * 1024 * 1024
"""Of what one read holds compressed."""
_GZIP_OR_ZLIB = 47


class Answer:
    """The answer to one request, as it comes. Raises OSError where the connection ends before it does.

    ``status`` and ``headers`` (lower-case names) are known once ``begun`` returns.
    """

    def __init__(self, connection: Connection) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.is_complete = False
        self._connection = connection
        self._parts: list[bytes] = []
        self._num_bytes = 0
        self._error: BaseException | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._inflate: Any = None

    async def begun(self) -> None:
        """Return once the head is there."""
        while not self.status:
            if self._error is not None:
                raise self._error
            await self._wait()

    async def readany(self) -> bytes:
        """Return what there is, waiting for it; empty at the end."""
        while not self._parts:
            if self._error is not None:
                raise self._error
            if self.is_complete:
                return b""
            await self._wait()
        data = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts.clear()
        if self._num_bytes > HIGH_WATER_BYTES:
            self._connection.resume()
        self._num_bytes = 0
        return data

    def set_exception(self, exc: BaseException) -> None:
        """End the read under way and all later ones; an answer that is whole stays so."""
        if not self.is_complete and self._error is None:
            self._error = exc
            self.wake()

    def close(self) -> None:
        """End the connection where it is still busy with this answer."""
        if not self.is_complete:
            self._connection.abort()

    def begin(self, status: int, headers: dict[str, str]) -> None:
        """The head is read. Raises ValueError for an encoding that was not asked for and is not known."""
        self.status, self.headers = status, headers
        encoding = headers.get("content-encoding", "identity").lower()
        if encoding in ("gzip", "x-gzip", "deflate"):
            self._inflate = zlib.decompressobj(_GZIP_OR_ZLIB)
        elif encoding != "identity":
            raise ValueError(encoding)

    def add(self, data: bytes) -> None:
        """Take a part of the body. Raises ValueError and zlib.error where it cannot be inflated."""
        if self._inflate is not None:
            data = self._inflate.decompress(data, MAX_INFLATED_BYTES)
            if self._inflate.unconsumed_tail:
                raise ValueError("too large")
            if not data:
                return
        self._parts.append(data)
        was_low = self._num_bytes <= HIGH_WATER_BYTES
        self._num_bytes += len(data)
        if was_low and self._num_bytes > HIGH_WATER_BYTES:
            self._connection.pause()

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None


class Connection(asyncio.Protocol):
    """Carries one request after another. ``on_free`` is called after each that left it usable."""

    def __init__(self, on_free: Callable[[Connection], None], on_lost: Callable[[Connection], None]) -> None:
        self._on_free = on_free
        self._on_lost = on_lost
        self._parser = httptools.HttpResponseParser(self)
        # What aiohttp's client forgives in servers too.
        self._parser.set_dangerous_leniencies(
            lenient_headers=True, lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True
        )
        self._transport: asyncio.Transport | None = None
        self._answer: Answer | None = None
        self._headers: list[tuple[bytes, bytes]] = []
        self._num_head_bytes = 0
        self._num_unused_bytes = 0
        self._is_paused = False

    @property
    def is_usable(self) -> bool:
        """Whether a request may be sent on it now."""
        return self._answer is None and self._transport is not None and not self._transport.is_closing()

    def send(self, *parts: bytes) -> Answer:
        """Send a request, the bytes of its head and body. A lost connection is told by the answer."""
        answer = Answer(self)
        if self._transport is None:
            answer.set_exception(ConnectionResetError("the connection was closed at once"))
        else:
            self._answer = answer
            self._transport.writelines(parts)
        return answer

    def abort(self) -> None:
        """End the connection now; what is not sent yet never will be."""
        if self._transport is not None:
            self._transport.abort()

    def pause(self) -> None:
        if self._transport is not None and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        if self._transport is not None and self._is_paused:
            self._is_paused = False
            self._transport.resume_reading()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        answer = self._answer
        if answer is None:  # nothing was asked
            self.abort()
            return
        # Heads, trailers and chunks' extensions are kept by the parser until they end.
        self._num_unused_bytes += len(data)
        try:
            self._parser.feed_data(data)
            if self._num_unused_bytes > MAX_HEAD_BYTES:
                raise httptools.HttpParserError("what is no body does not end")
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            answer.set_exception(ConnectionError(f"this is no HTTP answer: {error}"))
            self.abort()
        answer.wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._on_lost(self)
        answer, self._answer = self._answer, None
        if answer is None:
            return
        if exc is None and answer.status and _ends_with_connection(answer.headers):
            answer.is_complete = True
        answer.set_exception(ConnectionResetError("the connection was closed before the answer was whole"))
        answer.wake()

    def on_message_begin(self) -> None:
        if self._answer is None:
            raise ValueError("an answer that nobody asked for")
        self._headers, self._num_head_bytes = [], 0

    def on_header(self, name: bytes, value: bytes) -> None:
        self._num_head_bytes += len(name) + len(value)
        if self._num_head_bytes > MAX_HEAD_BYTES:
            raise ValueError("the head is too large")
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        self._num_unused_bytes = 0
        status = self._parser.get_status_code()
        if self._answer is not None and status >= 200:
            headers = {
                name.decode("latin-1").lower(): value.decode("latin-1") for name, value in self._headers
            }
            self._answer.begin(status, headers)

    def on_body(self, body: bytes) -> None:
        self._num_unused_bytes = 0
        if self._answer is not None:
            self._answer.add(body)

    def on_message_complete(self) -> None:
        answer = self._answer
        if answer is None or not answer.status:  # 100 Continue, 103 Early Hints
            return
        answer.is_complete = True
        self._answer = None
        if self._transport is None:
            return
        if self._transport.get_write_buffer_size():  # it answered before it had read the request
            self.abort()
        elif self._parser.should_keep_alive():
            self.resume()
            self._on_free(self)
        else:
            self._transport.close()


def _ends_with_connection(headers: dict[str, str]) -> bool:
    """Whether a body's end is the connection's: its length is told in no other way."""
    return "content-length" not in headers and "chunked" not in headers.get("transfer-encoding", "").lower()
