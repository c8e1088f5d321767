"""Ends a read that waits too long, with one timer for a whole stream."""

from __future__ import annotations

import asyncio
import math
from typing import Protocol


class Readable(Protocol):
    """What reads wait on; an exception set there ends the one under way and all later ones."""

    def set_exception(self, exc: BaseException) -> None: ...


class Silence:
    """``begin`` before a read, ``end`` after it; a read that is not over in time raises TimeoutError.

    The timer is left where it is while reads begin and end, and looks at its time whether one is late:
    asyncio.timeout, which sets and cancels one for every read, costs 10 µs a chunk.
    """

    def __init__(self, content: Readable) -> None:
        self._content = content
        self._loop = asyncio.get_running_loop()
        self._deadline_s = math.inf
        """On the loop's clock; infinite while nothing is read."""
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, limit_s: float) -> None:
        self._deadline_s = self._loop.time() + limit_s
        if self._timer is not None and self._timer.when() > self._deadline_s:
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._timer = self._loop.call_at(self._deadline_s, self._look)

    def end(self) -> None:
        self._deadline_s = math.inf

    def close(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        if self._loop.time() >= self._deadline_s:
            self._content.set_exception(TimeoutError())
        elif self._deadline_s < math.inf:
            self._timer = self._loop.call_at(self._deadline_s, self._look)
