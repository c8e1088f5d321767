"""Server-sent events: frames, pings, and the response that stops when its client goes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Any

import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from worker.errors import ClientLeftError
from worker.server.disconnect import until_client_leaves

DONE = b"data: [DONE]\n\n"
PING = b": ping\n\n"
HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}

# httpx-sse#34: clients that split lines as str.splitlines() does would cut an event at these.
_LINE_SEPARATORS = (
    ("\u0085".encode(), b"\\u0085"),
    ("\u2028".encode(), b"\\u2028"),
    ("\u2029".encode(), b"\\u2029"),
)


def frame(event: Any) -> bytes:
    """One event: a line of JSON and a blank line."""
    encoded = orjson.dumps(event)
    for raw, escaped in _LINE_SEPARATORS:
        if raw in encoded:
            encoded = encoded.replace(raw, escaped)
    return b"data: " + encoded + b"\n\n"


class EventStream(Response):
    """Sends frames as they come, and a comment where none came for ``ping_s``; ``on_end`` runs in any case.

    (A generator's own ``finally`` does not run where the client leaves before its first frame.)
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        frames: AsyncGenerator[bytes, None],
        *,
        ping_s: float,
        on_end: Callable[[], None],
        headers: Mapping[str, str],
    ) -> None:
        super().__init__(headers={**HEADERS, **headers})
        del self.headers["content-length"]
        self._frames = frames
        self._ping_s = ping_s
        self._on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await until_client_leaves(receive, self._send_all(send))
        except ClientLeftError:
            return
        finally:
            self._on_end()
            await self._frames.aclose()

    async def _send_all(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async with aclosing(with_pings(self._frames, self._ping_s)) as chunks:
            async for chunk in chunks:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def with_pings(frames: AsyncGenerator[bytes, None], ping_s: float) -> AsyncGenerator[bytes, None]:
    """Pass the frames on, and a comment after every ``ping_s`` of silence."""
    while True:
        upcoming = asyncio.ensure_future(anext(frames, None))
        try:
            while not (await asyncio.wait((upcoming,), timeout=ping_s))[0]:
                yield PING
            chunk = upcoming.result()
        finally:
            upcoming.cancel()
            await asyncio.gather(upcoming, return_exceptions=True)
        if chunk is None:
            return
        yield chunk
