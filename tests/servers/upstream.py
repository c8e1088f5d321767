"""A worker that misbehaves on demand: a real server on a free port, on an event loop in a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import orjson
import pytest
from aiohttp import web

START_S = 60.0
MODEL = "fake-model"


@dataclass(frozen=True, slots=True)
class Pause:
    """Silence between two pieces."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Hang:
    """Silence until the client leaves or the test ends."""


@dataclass(frozen=True, slots=True)
class Die:
    """The connection is reset."""


Piece: TypeAlias = bytes | Pause | Hang | Die


@dataclass(frozen=True, slots=True)
class Script:
    """What an upstream does with one request. Each ``bytes`` is one write to the socket."""

    pieces: Sequence[Piece] = ()
    status: int = 200
    content_type: str = "text/event-stream"
    headers: dict[str, str] = field(default_factory=dict)
    is_silent: bool = False
    """Accepts the request and sends not even a status."""
    dies_at_once: bool = False
    """Resets the connection before a status."""


def events(*payloads: object, done: bool = True) -> bytes:
    """Frames of a stream; a ``bytes`` payload goes as it is."""
    frames = [
        b"data: " + (payload if isinstance(payload, bytes) else orjson.dumps(payload)) + b"\n\n"
        for payload in payloads
    ]
    return b"".join(frames) + (b"data: [DONE]\n\n" if done else b"")


def chunk(
    content: str | None = None, *, index: int = 0, finish: str | None = None, **more: Any
) -> dict[str, Any]:
    """One chunk of a chat stream as an OpenAI-compatible server sends it."""
    delta = {} if content is None else {"content": content}
    choice = {"index": index, "delta": delta, "finish_reason": finish}
    return {
        "id": "chatcmpl-up",
        "object": "chat.completion.chunk",
        "created": 1_700_000_000,
        "model": MODEL,
        "choices": [choice],
        **more,
    }


def whole(content: str, finish: str | None = "stop", **more: Any) -> bytes:
    """An answer that is not streamed."""
    choice = {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": finish}
    return orjson.dumps(
        {
            "id": "chatcmpl-up",
            "object": "chat.completion",
            "created": 1_700_000_000,
            "model": MODEL,
            "choices": [choice],
            "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
            **more,
        }
    )


class Loop:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Any) -> Any:
        waiting: Future[Any] = asyncio.run_coroutine_threadsafe(work, self.loop)
        return waiting.result(START_S)

    def end(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(START_S)
        self.loop.close()


class Upstream:
    """An OpenAI-compatible worker whose answers are scripted; the last script repeats.

    ``received``: (path, body) of each completion request; ``headers``: its headers; ``num_open``: those
    in work now; ``num_left``: those whose client closed the connection before the answer's end.
    """

    def __init__(self, loop: Loop, *, is_native: bool) -> None:
        self.received: list[tuple[str, dict[str, Any]]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.num_open = 0
        self.num_left = 0
        self.models = [MODEL]
        self.environment: dict[str, Any] = {}
        """What its models tell under ``gravity``, where there is something."""
        self.is_ready = True
        self.tokens: dict[str, list[int]] | None = None
        """Token ids by text, where it has a tokenizer to ask."""
        self.is_slow_to_tokenize = False
        self._released = asyncio.Event()
        self._released.set()
        self._is_native = is_native
        self._scripts: list[Script] = []
        self._loop = loop
        self._runner: web.AppRunner | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def plays(self, *scripts: Script | bytes) -> None:
        """What it does with the next requests, in order; bytes are the pieces of a plain stream."""
        self._scripts = [s if isinstance(s, Script) else Script([s]) for s in scripts]

    def hold(self) -> None:
        """Answer no request before ``release``."""
        self._loop.loop.call_soon_threadsafe(self._released.clear)

    def release(self) -> None:
        """Answer what is held, and what comes."""
        self._loop.loop.call_soon_threadsafe(self._released.set)

    def forget(self) -> None:
        """Begin to count anew."""
        self.received.clear()
        self.headers.clear()
        self.paths.clear()
        self.num_left = 0

    def start(self) -> None:
        self._loop.run(self._start())

    def stop(self) -> None:
        """Stop listening and drop every connection; ``start`` brings it back at the same port."""
        self._loop.run(self._stop())

    async def _start(self) -> None:
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def _stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self.paths.append(request.path)
        native = {"x-gravity-worker": "native"} if self._is_native else {}
        match request.path:
            case "/v1/models":
                told = {"gravity": {"environment": self.environment}} if self.environment else {}
                data = [
                    {"id": name, "object": "model", "max_model_len": 2048, **told} for name in self.models
                ]
                return web.json_response({"object": "list", "data": data}, headers=native)
            case "/readyz":
                return web.json_response({}, status=200 if self.is_ready else 503)
            case "/tokenize":
                return await self._tokenized(await request.json())
        return await self._complete(request)

    async def _tokenized(self, asked: dict[str, Any]) -> web.Response:
        if self.is_slow_to_tokenize:
            await asyncio.Event().wait()
        if "prompts" in asked:
            return web.json_response({"counts": [len(text.split()) for text in asked["prompts"]]})
        if self.tokens is None:
            return web.json_response({"detail": "Not Found"}, status=404)
        return web.json_response({"tokens": self.tokens.get(asked["prompt"], [])})

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        self.received.append((request.path, await request.json()))
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        script = self._scripts.pop(0) if len(self._scripts) > 1 else self._scripts[0]
        self.num_open += 1
        try:
            await self._released.wait()
            return await self._play(request, script)
        except (asyncio.CancelledError, ConnectionResetError):
            self.num_left += 1
            raise
        finally:
            self.num_open -= 1

    async def _play(self, request: web.Request, script: Script) -> web.StreamResponse:
        if script.is_silent:
            await asyncio.Event().wait()
        response = web.StreamResponse(
            status=script.status, headers={"Content-Type": script.content_type, **script.headers}
        )
        if script.dies_at_once:
            _reset(request)
            return response
        await response.prepare(request)
        for piece in script.pieces:
            match piece:
                case Pause(seconds):
                    await asyncio.sleep(seconds)
                case Hang():
                    await asyncio.Event().wait()
                case Die():
                    _reset(request)
                    return response
                case bytes():
                    await response.write(piece)
        await response.write_eof()
        return response


def _reset(request: web.Request) -> None:
    assert request.transport is not None
    request.transport.abort()


class StartUpstream(Protocol):
    """Starts one more upstream."""

    def __call__(self, *, is_native: bool = True) -> Upstream: ...


@pytest.fixture(scope="session")
def server_loop() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    loop.end()


@pytest.fixture
def start_upstream(server_loop: Loop) -> Iterator[StartUpstream]:
    started: list[Upstream] = []

    def start(*, is_native: bool = True) -> Upstream:
        upstream = Upstream(server_loop, is_native=is_native)
        upstream.start()
        started.append(upstream)
        return upstream

    yield start
    for upstream in started:
        upstream.stop()


@pytest.fixture
def upstream(start_upstream: StartUpstream) -> Upstream:
    """A native worker that is scripted."""
    return start_upstream()
