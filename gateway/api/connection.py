"""A connection before there is a request: how large a head may be, how long it takes, how a bad one is told.

uvicorn's parser takes heads of any size and waits for them for ever. What is refused here never reaches the
application, so the answer is written by hand.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar

from starlette.datastructures import MutableHeaders
from starlette.responses import Response
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from gateway.api.patience import PatientProtocol
from gateway.api.problems import shaped
from gateway.errors import HeadTooLarge, InvalidRequest, RequestError, RequestTimedOut, UrlTooLong
from gateway.settings import GatewaySettings

SECURITY_HEADERS = {"X-Content-Type-Options": "nosniff"}


@dataclass(frozen=True, slots=True)
class Limits:
    """In bytes, for the head names and values of all headers together; and in seconds."""

    max_url_bytes: int
    max_head_bytes: int
    head_timeout_s: float
    body_timeout_s: float

    @classmethod
    def of(cls, settings: GatewaySettings) -> Limits:
        return cls(
            settings.max_url_bytes, settings.max_head_bytes, settings.head_timeout_s, settings.body_timeout_s
        )


class Stage(Enum):
    """What the client is to send next."""

    NOTHING = 0
    HEAD = 1
    BODY = 2


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's HTTP/1.1 with ``limits``, and errors in the shape of their path.

    A request that comes in one read costs no timer.
    """

    limits: ClassVar[Limits]

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.url = b""
        self._stage = self._timed = Stage.NOTHING
        self._timer: asyncio.TimerHandle | None = None
        self._num_heads = 0
        self._num_head_bytes = 0
        self._num_unparsed_bytes = 0
        self._refusal: RequestError | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._stage = Stage.HEAD
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        num_heads = self._num_heads
        super().data_received(data)
        if self.transport.is_closing():
            self._stop_timer()
            return
        if self._stage is Stage.HEAD and self._num_heads == num_heads:
            # One header that never ends is told to nobody by the parser.
            self._num_unparsed_bytes += len(data)
            if self._num_unparsed_bytes > self.limits.max_head_bytes:
                self._refuse(HeadTooLarge())
                return
        if self._stage is Stage.NOTHING and self.timeout_keep_alive_task is None and not self._is_answering:
            self._stage = Stage.HEAD  # blank lines, which end uvicorn's waiting and begin no request
        self._watch()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._stage = Stage.HEAD
        self._num_heads += 1
        self._num_head_bytes = self._num_unparsed_bytes = 0

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        if len(self.url) > self.limits.max_url_bytes:
            raise self._refused(UrlTooLong())

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        self._num_head_bytes += len(name) + len(value) + 4
        if self._num_head_bytes > self.limits.max_head_bytes:
            raise self._refused(HeadTooLarge())

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self._stage = Stage.BODY

    def on_message_complete(self) -> None:
        self._stop_timer()
        self._stage = Stage.NOTHING
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Called by uvicorn for whatever its parser does not read on from, our own refusals among it."""
        self._refuse(self._refusal or InvalidRequest("This is not a valid HTTP request."))

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _refused(self, error: RequestError) -> RequestError:
        self._refusal = error
        return error

    def _refuse(self, error: RequestError) -> None:
        """Answer ``error``, unless an answer has begun that it would become a part of; and close."""
        self._stop_timer()
        if self._is_answering:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            is_free = not self.cycle.response_started and not self.pipeline
        else:
            is_free = self._stage is not Stage.BODY
        if is_free:
            path = self.url.partition(b"?")[0].decode("latin-1")
            self.transport.write(written(shaped(error, path)))
        self.transport.close()

    def _watch(self) -> None:
        """Have one timer for what is awaited now."""
        if self._stage is self._timed:
            return
        self._stop_timer()
        seconds = {Stage.HEAD: self.limits.head_timeout_s, Stage.BODY: self.limits.body_timeout_s}
        if self._stage in seconds:
            self._timed = self._stage
            self._timer = self.loop.call_later(seconds[self._stage], self._too_late)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timed = None, Stage.NOTHING

    def _too_late(self) -> None:
        self._stop_timer()
        is_next = self._stage is Stage.HEAD and self._is_answering
        if is_next or self.flow.read_paused:  # it is we who let the client wait
            self._watch()
        elif not self.transport.is_closing():
            self._refuse(RequestTimedOut())


def bounded(settings: GatewaySettings) -> type[BoundedProtocol]:
    """Return the protocol with the limits of the settings, as uvicorn takes one."""
    given = {"limits": Limits.of(settings), "write_timeout_s": settings.write_timeout_s}
    return type("BoundedProtocol", (PatientProtocol, BoundedProtocol), given)


def written(response: Response, new_id: Callable[[], str] = lambda: f"req-{uuid.uuid4().hex}") -> bytes:
    """Return the bytes of an answer after which the connection is closed."""
    headers = MutableHeaders(raw=response.raw_headers)
    headers.update({**SECURITY_HEADERS, "X-Request-Id": new_id(), "Connection": "close"})
    lines = b"".join(b"%s: %s\r\n" % header for header in headers.raw)
    return STATUS_LINE[response.status_code] + lines + b"\r\n" + bytes(response.body)
