"""Brings the engine's events to the event loop: one wake-up for all that a step emits."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from worker.engine.request import EngineEvent

Receiver: TypeAlias = Callable[[EngineEvent], None]


class Inbox:
    """``post`` is called on the engine's thread; receivers run on the loop, in the order of posting."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._events: deque[tuple[Receiver, EngineEvent]] = deque()
        self._is_scheduled = False

    def post(self, receiver: Receiver, event: EngineEvent) -> None:
        self._events.append((receiver, event))
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        self._is_scheduled = (
            False  # before the first pop: whatever is posted from now on wakes the loop again
        )
        while self._events:
            receiver, event = self._events.popleft()
            receiver(event)
