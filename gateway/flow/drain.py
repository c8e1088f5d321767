"""Going away in order: open turns finish within the grace period, what remains is cut off with an error."""

from __future__ import annotations

import asyncio
from types import TracebackType

from gateway.errors import ShuttingDown


class Drain:
    """Counts the open turns and ends them when it has to."""

    def __init__(self) -> None:
        self.is_draining = False
        self._is_cut_off = False
        self._open: set[asyncio.Timeout] = set()
        self._optional: set[asyncio.Task[None]] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def num_open(self) -> int:
        return len(self._open)

    def turn(self) -> _OpenTurn:
        """Hold the gateway open for one turn. Raises ShuttingDown inside it when the grace period ends."""
        return _OpenTurn(self)

    def enter(self, limit: asyncio.Timeout) -> None:
        """A turn begins that ends with ``limit``. Raises ShuttingDown after the grace period."""
        if self._is_cut_off:
            raise ShuttingDown(retry_after_s=1.0)
        self._open.add(limit)
        self._idle.clear()

    def leave(self, limit: asyncio.Timeout) -> None:
        self._open.discard(limit)
        if not self._open:
            self._idle.set()

    def ends_at_begin(self, task: asyncio.Task[None]) -> None:
        """Nobody waits for ``task``: cancel it when the gateway begins to leave."""
        self._optional.add(task)
        task.add_done_callback(self._optional.discard)

    def begin(self) -> None:
        """From now on the gateway is not ready; it still serves whoever has not noticed."""
        self.is_draining = True
        for task in self._optional:
            task.cancel()

    async def wait(self, grace_s: float) -> int:
        """Return once no turn is open; after ``grace_s`` cut the rest off. Returns how many were."""
        try:
            async with asyncio.timeout(grace_s):
                await self._idle.wait()
        except TimeoutError:
            pass
        self._is_cut_off = True
        num_cut = len(self._open)
        now = asyncio.get_running_loop().time()
        for limit in self._open:
            limit.reschedule(now)
        await self._idle.wait()
        return num_cut


class _OpenTurn:
    """A block that ends when the gateway has to. Written out, as a generator would cost 5 µs a turn."""

    def __init__(self, drain: Drain) -> None:
        self._drain = drain
        self._limit = asyncio.timeout(None)

    async def __aenter__(self) -> None:
        self._drain.enter(self._limit)
        await self._limit.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._drain.leave(self._limit)
        try:
            await self._limit.__aexit__(kind, error, trace)
        except TimeoutError:
            raise ShuttingDown(retry_after_s=1.0) from None
