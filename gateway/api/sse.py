"""An answer as server-sent events: frames that end in a blank line, pings, an error as an event."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import orjson
from starlette.types import Send

from gateway.errors import RequestError

HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)
PING = b": ping\n\n"
DONE = b"[DONE]"


def frame(data: bytes) -> bytes:
    """One event. ``data`` is JSON on one line."""
    return b"data: " + data + b"\n\n"


class EventStream:
    """Sends events to one client. Nothing is sent, not even a status, before the first event."""

    def __init__(
        self, send: Send, headers: Mapping[str, str], ping_interval_s: float, clock: Callable[[], float]
    ) -> None:
        self._send = send
        self._headers = headers
        self._ping_interval_s = ping_interval_s
        self._clock = clock
        self._sent_at = clock()
        self._pinger: asyncio.Task[None] | None = None
        self.has_started = False

    async def emit(self, data: bytes) -> None:
        """Send one event, the status before the first."""
        if not self.has_started:
            await self._start()
        await self._write(frame(data))

    async def fail(self, error: RequestError) -> None:
        """After the first event an error can only be an event too."""
        await self.emit(orjson.dumps(error.as_body()))
        await self.emit(DONE)

    async def end(self) -> None:
        """Close the body."""
        await self.stop()
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def stop(self) -> None:
        """Send no more pings."""
        if self._pinger is not None:
            self._pinger.cancel()
            await asyncio.wait([self._pinger])

    async def _start(self) -> None:
        self.has_started = True
        named = [(name.lower().encode(), value.encode()) for name, value in self._headers.items()]
        await self._send({"type": "http.response.start", "status": 200, "headers": [*HEADERS, *named]})
        self._pinger = asyncio.create_task(self._ping(), name="ping")

    async def _ping(self) -> None:
        while True:
            silence_s = self._clock() - self._sent_at
            if silence_s >= self._ping_interval_s:
                await self._write(PING)
                silence_s = 0.0
            await asyncio.sleep(self._ping_interval_s - silence_s)

    async def _write(self, frame: bytes) -> None:
        self._sent_at = self._clock()
        await self._send({"type": "http.response.body", "body": frame, "more_body": True})
