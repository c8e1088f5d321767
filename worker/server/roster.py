"""The generations that are going on: who may join, and how they end when the process does."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Protocol

from worker.errors import DrainingError, QueueFullError, WorkerError

_ENDING_S = 2.0


class Member(Protocol):
    """A generation, as far as the roster knows it."""

    @property
    def num_choices(self) -> int: ...

    def fail(self, error: WorkerError) -> None: ...


class Roster:
    """Counts choices, waiting and decoding, against a bound. Lives on the event loop."""

    def __init__(self, max_choices: int) -> None:
        self.max_choices = max_choices
        self._members: set[Member] = set()
        self._is_empty = asyncio.Event()
        self._is_empty.set()
        self._closed_by: WorkerError | None = None

    @property
    def is_draining(self) -> bool:
        return self._closed_by is not None

    @property
    def num_choices(self) -> int:
        return sum(member.num_choices for member in self._members)

    def join(self, member: Member) -> None:
        """Raises QueueFullError where the member's choices do not fit, and whatever has closed the roster."""
        if self._closed_by is not None:
            raise self._closed_by.with_traceback(None)
        if self.num_choices + member.num_choices > self.max_choices:
            raise QueueFullError(f"more than {self.max_choices} sequences decode or wait")
        self._members.add(member)
        self._is_empty.clear()

    def leave(self, member: Member) -> None:
        self._members.discard(member)
        if not self._members:
            self._is_empty.set()

    async def drain(self, timeout_s: float) -> None:
        """Let nobody in, wait for those inside, and fail whoever remains after ``timeout_s``."""
        self._closed_by = DrainingError("the worker is shutting down")
        await self._wait_until_empty(timeout_s)
        self.shut(DrainingError("the worker shut down before the answer was complete"))
        await self._wait_until_empty(_ENDING_S)

    def shut(self, error: WorkerError) -> None:
        """Let nobody in, and fail everybody inside at once."""
        self._closed_by = error
        for member in tuple(self._members):
            member.fail(error)

    async def _wait_until_empty(self, timeout_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._is_empty.wait()
