"""What is asked of one worker. Whatever connections raise is translated here; no caller sees it.

Turns go by connections of our own, all else by aiohttp.
"""

from __future__ import annotations

import asyncio
import io
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, Protocol, TypeAlias

import aiohttp
import orjson

from gateway.addresses import Network
from gateway.errors import UpstreamError, UpstreamTimeout, WorkerUnreachable
from gateway.pool.connections import KEEPALIVE_S, Connections
from gateway.pool.connector import checked_sockets
from gateway.pool.events import EventParser
from gateway.pool.exchange import Answer
from gateway.pool.heads import Heads
from gateway.pool.refusal import refusal
from gateway.pool.silence import Silence

Level: TypeAlias = Literal["native", "opaque"]

LEVEL_HEADER = "x-gravity-worker"
MAX_ANSWER_BYTES = 64 * 1024 * 1024
MAX_ERROR_BYTES = 64 * 1024
MAX_ENVIRONMENT_BYTES = 8 * 1024
"""It goes into every turn's record."""
MAX_WORD = 100
SETTLE_S = 0.1
NO_HEADERS: Mapping[str, str] = MappingProxyType({})
LARGE_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Timeouts:
    """In seconds.

    ``connect_s``        the TCP connection
    ``first_token_s``    until a stream begins, and until its second event
    ``idle_s``           between two events of a stream; a comment (": ping") is none
    ``whole_s``          an answer that is not streamed
    """

    connect_s: float
    first_token_s: float
    idle_s: float
    whole_s: float


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a worker says of itself. ``models`` maps ids to context lengths, None where none is told."""

    level: Level
    models: Mapping[str, int | None]
    vocabulary_sizes: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """By model, where the server tells (llama.cpp does)."""
    environment: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """What it computes with: a native worker's own words, of others what their headers and models show."""


class Reply:
    """An answer that has begun with 200. ``close`` ends the connection, so that the worker stops its work.

    Iterating gives the data of each event of a stream. Raises UpstreamError where the connection dies,
    UpstreamTimeout where it falls silent.
    """

    def __init__(self, answer: Answer, timeouts: Timeouts, whole: bytes | None = None) -> None:
        """``whole``: the body of an answer that is no stream."""
        self._answer = answer
        self._timeouts = timeouts
        self._silence = Silence(answer)
        self._parser = EventParser()
        self._waiting: deque[bytes] = deque()
        self._limit_s = timeouts.first_token_s
        self._num_events = 0
        self._has_ended = False
        self._whole = whole

    async def peek(self) -> bytes | None:
        """Return the next event without taking it; None at the end of the stream."""
        if not self._waiting and not self._has_ended:
            await self._read()
        return self._waiting[0] if self._waiting else None

    async def _read(self) -> None:
        """Wait for an event or the end. A comment is no sign of one: a worker that only pings has hung."""
        self._silence.begin(self._limit_s)
        try:
            while not self._waiting and not self._has_ended:
                chunk = await self._answer.readany()
                self._has_ended = not chunk
                self._waiting += self._parser.feed(chunk) if chunk else self._parser.finish()
        except OSError as error:  # TimeoutError is one
            raise _meaning(error) from error
        finally:
            self._silence.end()
        self._num_events += len(self._waiting)
        if self._num_events > 1:  # many servers send the role at once and the first token much later
            self._limit_s = self._timeouts.idle_s

    def __aiter__(self) -> Reply:
        return self

    async def __anext__(self) -> bytes:
        if not self._waiting and await self.peek() is None:
            raise StopAsyncIteration
        return self._waiting.popleft()

    def whole(self) -> bytes:
        """Return the body of an answer that was not asked for as a stream."""
        assert self._whole is not None
        return self._whole

    async def settle(self) -> None:
        """After the last event, let the connection end in order, so that it can be used again."""
        if self._answer.is_complete:
            return
        try:
            async with asyncio.timeout(SETTLE_S):
                while await self._answer.readany():
                    pass
        except OSError:
            return  # the answer is complete; only the connection is lost

    def close(self) -> None:
        """End the connection where it is still busy."""
        self._silence.close()
        self._answer.close()


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
            raise _meaning(error) from error
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
        models = _models(answer)
        if is_native:
            await self._ask("/readyz", timeout_s)
            told = {"level": "native", **_told_environment(answer)}
            return Capabilities("native", models, environment=told)
        seen = {"level": "opaque", **_seen_environment(answer, server)}
        return Capabilities("opaque", models, _vocabulary_sizes(answer), seen)

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
        raise _meaning(error) from error


def _meaning(error: Exception) -> UpstreamError | UpstreamTimeout:
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
        return WorkerUnreachable()
    return UpstreamTimeout() if isinstance(error, TimeoutError) else UpstreamError()


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


def _models(answer: Mapping[str, Any]) -> dict[str, int | None]:
    entries = answer.get("data")
    if not isinstance(entries, list):
        raise UpstreamError("The worker's /v1/models is no list of models.")
    return {
        entry["id"]: _context_length(entry)
        for entry in entries
        if isinstance(entry, dict) and isinstance(entry.get("id"), str)
    }


def _vocabulary_sizes(answer: Mapping[str, Any]) -> dict[str, int]:
    sizes = {}
    for entry in answer["data"]:
        meta = entry.get("meta") if isinstance(entry, dict) else None
        size = meta.get("n_vocab") if isinstance(meta, dict) else None
        if type(size) is int and size > 1 and isinstance(entry.get("id"), str):
            sizes[entry["id"]] = size
    return sizes


def _told_environment(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a native worker's own description; empty where it gives none, or far too much."""
    for entry in answer["data"]:
        gravity = entry.get("gravity") if isinstance(entry, dict) else None
        told = gravity.get("environment") if isinstance(gravity, dict) else None
        if isinstance(told, dict) and len(orjson.dumps(told)) <= MAX_ENVIRONMENT_BYTES:
            return told
    return {}


def _seen_environment(answer: Mapping[str, Any], server: str) -> dict[str, Any]:
    """Return what a server shows that says nothing of itself: its name, and who owns its models."""
    owners = (entry.get("owned_by") for entry in answer["data"] if isinstance(entry, dict))
    owner = next((each for each in owners if isinstance(each, str)), "")
    seen = {"server": server[:MAX_WORD], "owned_by": owner[:MAX_WORD]}
    return {name: value for name, value in seen.items() if value}


def _context_length(entry: Mapping[str, Any]) -> int | None:
    length = entry.get("max_model_len")
    return length if isinstance(length, int) else None
