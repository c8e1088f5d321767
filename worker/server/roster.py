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
        self._max_choices = max_choices
        self._members: set[Member] = set()
        self._is_empty = asyncio.Event()
        self._is_empty.set()
        self.is_draining = False

    @property
    def num_choices(self) -> int:
        return sum(member.num_choices for member in self._members)

    def join(self, member: Member) -> None:
        """Raises DrainingError, and QueueFullError where the member's choices do not fit."""
        if self.is_draining:
            raise DrainingError("the worker is shutting down")
        if self.num_choices + member.num_choices > self._max_choices:
            raise QueueFullError(f"more than {self._max_choices} sequences decode or wait")
        self._members.add(member)
        self._is_empty.clear()

    def leave(self, member: Member) -> None:
        self._members.discard(member)
        if not self._members:
            self._is_empty.set()

    async def drain(self, timeout_s: float) -> None:
        """Let nobody in, wait for those inside, and fail whoever remains after ``timeout_s``."""
        self.is_draining = True
        await self._wait_until_empty(timeout_s)
        for member in tuple(self._members):
            member.fail(DrainingError("the worker shut down before the answer was complete"))
        await self._wait_until_empty(_ENDING_S)

    async def _wait_until_empty(self, timeout_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._is_empty.wait()
