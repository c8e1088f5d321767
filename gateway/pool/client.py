"""What is asked of one worker. Whatever connections raise is translated here; no caller sees it.

Turns go by connections of our own, all else by aiohttp.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, Protocol

import aiohttp
import orjson

from gateway.addresses import Network
from gateway.errors import UpstreamError
from gateway.pool.capabilities import Capabilities, native_capabilities, opaque_capabilities
from gateway.pool.connections import KEEPALIVE_S, Connections
from gateway.pool.connector import checked_sockets
from gateway.pool.heads import Heads
from gateway.pool.refusal import refusal
from gateway.pool.reply import Reply, Timeouts, meaning

LEVEL_HEADER = "x-gravity-worker"
MAX_ANSWER_BYTES = 64 * 1024 * 1024
MAX_ERROR_BYTES = 64 * 1024
NO_HEADERS: Mapping[str, str] = MappingProxyType({})
LARGE_BYTES = 1024 * 1024


class Body(Protocol):
    """What an answer's bytes come out of; empty bytes are its end."""

    async def readany(self) -> bytes: ...


class WorkerClient:
    """Speaks the OpenAI surface to one worker."""

    def __init__(
        self, url: str, timeouts: Timeouts, api_key: str | None = None, allowed: Sequence[Network] = ()
    ) -> None:
        """``allowed`` are networks that may be connected to although they are out of bounds."""
        self.url = url
        self._timeouts = timeouts
        headers = {"Accept-Encoding": "identity"}
        if api_key is not None:
            headers["Authorization"] = f"Bearer {api_key}"
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=0, keepalive_timeout=KEEPALIVE_S, socket_factory=checked_sockets(allowed)
            ),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=timeouts.connect_s),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=headers,
        )
        self._connections = Connections(url, timeouts.connect_s, allowed)
        self._heads = Heads(url, headers)

    async def close(self) -> None:
        self._connections.close()
        await self._session.close()

    @property
    def is_closed(self) -> bool:
        return self._session.closed

    async def send(
        self, path: str, body: bytes, *, is_streaming: bool, headers: Mapping[str, str] = NO_HEADERS
    ) -> Reply:
        """Send a request and return its answer: a stream once the worker says 200, else when it is whole.

        Raises WorkerUnreachable, UpstreamError, UpstreamTimeout, or what the worker's refusal means.
        """
        limit_s = self._timeouts.first_token_s if is_streaming else self._timeouts.whole_s
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        connection = self._connections.free() or await self._connections.new()
        answer = connection.send(self._heads.of(path, len(body), headers), body)
        # One timer by hand: asyncio.timeout costs four times as much.
        timer = loop.call_at(started_s + limit_s, answer.set_exception, TimeoutError())
        try:
            await answer.begun()
            is_good = answer.status == 200
            if is_good and is_streaming:
                return Reply(answer, self._timeouts)
            content = await _bounded(answer, MAX_ANSWER_BYTES if is_good else MAX_ERROR_BYTES)
        except OSError as error:
            answer.close()
            raise meaning(error) from error
        except BaseException:
            answer.close()
            raise
        finally:
            timer.cancel()
        if is_good:
            return Reply(answer, self._timeouts, content)
        raise refusal(answer.status, answer.headers, content)

    async def count_tokens(self, model: str, texts: Sequence[str], *, timeout_s: float) -> list[int]:
        """Return the number of tokens of each text, by the worker's own tokenizer. Raises UpstreamError."""
        answer = await self._ask("/tokenize", timeout_s, {"model": model, "prompts": list(texts)})
        counts = answer.get("counts")
        if not isinstance(counts, list) or len(counts) != len(texts):
            raise UpstreamError("The worker's /tokenize did not answer with one count a text.")
        if not all(isinstance(count, int) for count in counts):
            raise UpstreamError("The worker's /tokenize answered with what is no count.")
        return counts

    async def token_ids(self, model: str, text: str, *, has_special: bool, timeout_s: float) -> list[int]:
        """Return the ids of ``text``, special tokens around it or not, by the worker's own tokenizer.

        One request in vLLM's words, which are our workers' too, and llama.cpp's. Raises UpstreamError where
        there is no such tokenizer, UpstreamTimeout.
        """
        said = {
            "prompt": text,
            "add_special_tokens": has_special,
            "content": text,
            "add_special": has_special,
        }
        tokens = (await self._ask("/tokenize", timeout_s, {"model": model, **said})).get("tokens")
        is_list = isinstance(tokens, list) and all(type(token) is int for token in tokens)
        if not is_list or (text and not tokens):
            raise UpstreamError("The worker's /tokenize did not answer with token ids.")
        return list(tokens or ())

    async def capabilities(self, *, timeout_s: float) -> Capabilities:
        """Ask the worker what it is and whether it is ready. Raises UpstreamError where it is not."""
        with _translated():
            async with (
                asyncio.timeout(timeout_s),
                self._session.get(f"{self.url}/v1/models", allow_redirects=False) as response,
            ):
                answer = _parsed(response.status, await _bounded(response.content, MAX_ANSWER_BYTES))
                is_native = LEVEL_HEADER in response.headers
                server = response.headers.get("Server", "")
        if not is_native:
            return opaque_capabilities(answer, server)
        capabilities = native_capabilities(answer)
        await self._ask("/readyz", timeout_s)
        return capabilities

    async def _post(self, path: str, body: bytes) -> aiohttp.ClientResponse:
        data: bytes | io.BytesIO = body if len(body) < LARGE_BYTES else io.BytesIO(body)
        return await self._session.post(
            self.url + path,
            data=data,
            headers={"Content-Type": "application/json"},
            allow_redirects=False,
        )

    async def _ask(self, path: str, timeout_s: float, body: object | None = None) -> dict[str, Any]:
        with _translated():
            async with asyncio.timeout(timeout_s):
                if body is None:
                    response = await self._session.get(self.url + path, allow_redirects=False)
                else:
                    response = await self._post(path, orjson.dumps(body))
                async with response:
                    content = await _bounded(response.content, MAX_ANSWER_BYTES)
        return _parsed(response.status, content) if body is not None else _require_ok(response.status)


@contextmanager
def _translated() -> Iterator[None]:
    """The one place where aiohttp's exceptions become ours."""
    try:
        yield
    except (aiohttp.ClientError, OSError) as error:
        raise meaning(error) from error


async def _bounded(body: Body, max_bytes: int) -> bytes:
    """Return all of a body. Raises UpstreamError where there is more."""
    parts = []
    num_bytes = 0
    while part := await body.readany():
        parts.append(part)
        num_bytes += len(part)
        if num_bytes > max_bytes:
            raise UpstreamError("The worker's answer is too large.")
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _require_ok(status: int) -> dict[str, Any]:
    if status != 200:
        raise UpstreamError(f"The worker answers {status}.")
    return {}


def _parsed(status: int, content: bytes) -> dict[str, Any]:
    _require_ok(status)
    try:
        answer = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise UpstreamError("The worker did not answer with JSON.") from error
    if not isinstance(answer, dict):
        raise UpstreamError("The worker did not answer with a JSON object.")
    return answer
