"""A front that hides what a native worker is: to a gateway it is anybody's OpenAI-compatible server."""

from __future__ import annotations

from typing import Any

import aiohttp
import orjson
from aiohttp import web

from tests.servers.upstream import Loop


class Front:
    """Passes requests on to a native worker, and asks it to trace each of them under an id of its own.

    ``received``: the bodies, in order; the steps of the one at ``i`` are exact in ``ng:trace:{trace_id(i)}``.
    """

    def __init__(self, loop: Loop, worker_url: str, name: str) -> None:
        self.received: list[dict[str, Any]] = []
        self.has_tokenizer = True
        self.url = ""
        self._name = name
        self._worker_url = worker_url
        self._loop = loop
        self._runner: web.AppRunner | None = None

    def trace_id(self, position: int) -> str:
        return f"exact-{self._name}-{position}"

    def start(self) -> None:
        self._loop.run(self._start())

    def stop(self) -> None:
        self._loop.run(self._stop())

    async def _start(self) -> None:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def _stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _handle(self, request: web.Request) -> web.Response:
        body: Any = await request.json() if request.can_read_body else None
        if request.path == "/tokenize" and not self.has_tokenizer:
            return web.Response(status=404)
        if request.path.endswith("completions"):
            self.received.append(body)
            trace = {"trace": {"turn_id": self.trace_id(len(self.received) - 1)}}
            body = {**body, "vllm_xargs": {"gravity": orjson.dumps(trace).decode()}}
        async with (
            aiohttp.ClientSession() as session,
            session.request(request.method, self._worker_url + request.path, json=body) as response,
        ):
            content = await response.read()
            kind = response.headers["Content-Type"]
            return web.Response(
                body=_plain(content, kind), status=response.status, headers={"Content-Type": kind}
            )


def _plain(content: bytes, kind: str) -> bytes:
    """Return the answer without what only a native worker says."""
    if "event-stream" not in kind:
        return orjson.dumps(_without_gravity(orjson.loads(content)))
    frames = content.split(b"\n\n")
    return b"\n\n".join(
        b"data: " + orjson.dumps(_without_gravity(orjson.loads(frame.removeprefix(b"data: "))))
        if frame.startswith(b"data: {")
        else frame
        for frame in frames
    )


def _without_gravity(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_gravity(each) for name, each in value.items() if name != "gravity"}
    return [_without_gravity(each) for each in value] if isinstance(value, list) else value
