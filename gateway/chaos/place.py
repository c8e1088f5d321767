"""A process that is paused, killed and started again in the course of a run."""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import dataclass, field
from time import monotonic

from gateway.stack.child import Child, Command, OnLine, keep_quiet
from gateway.stack.leash import Leash

READY_S = 300.0
GRACE_S = 10.0


@dataclass(frozen=True, slots=True)
class Away:
    """When a process could not answer, in seconds of the monotonic clock."""

    began_s: float
    ended_s: float
    was_killed: bool


@dataclass(slots=True)
class Place:
    """Where a process runs, whichever it is at the moment. ``tells_ready``: it prints a ready line."""

    command: Command
    leash: Leash
    port: int
    tells_ready: bool = True
    on_line: OnLine = keep_quiet
    child: Child | None = None
    away: list[Away] = field(default_factory=list)
    is_meant_to_run: bool = False
    deaths: list[str] = field(default_factory=list)
    """The last output of each process that ended and nobody meant it to."""
    _away_since_s: float = 0.0
    _was_killed: bool = False

    @property
    def name(self) -> str:
        return self.command.name

    @property
    def pid(self) -> int:
        assert self.child is not None
        return self.child.pid

    @property
    def has_died(self) -> bool:
        """Whether it has ended and nobody meant it to."""
        return self.is_meant_to_run and self.child is not None and self.child.has_ended

    def look(self) -> None:
        """Note it where it has died; a process that is started in its place hides it."""
        if self.has_died:
            assert self.child is not None
            self.deaths.append(self.child.last_output)

    async def start(self) -> None:
        """Start it. Raises StackError where it does not say that it is ready in time."""
        self.child = await Child.start(self.command, self.leash, self.on_line)
        if self.tells_ready:
            await self.child.wait_ready(READY_S)
        self.is_meant_to_run = True

    def pause(self) -> None:
        self._goes_away(was_killed=False)
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._signal(signal.SIGCONT)
        self.is_back()

    async def kill(self) -> None:
        self.look()
        self._goes_away(was_killed=True)
        self.is_meant_to_run = False
        self._signal(signal.SIGKILL)
        assert self.child is not None
        await self.child.wait()

    async def stop(self) -> None:
        """End it in order."""
        self.is_meant_to_run = False
        if self.child is not None:
            self._signal(signal.SIGCONT)
            await self.child.stop(GRACE_S)

    def was_killed_between(self, began_s: float, ended_s: float) -> bool:
        return any(a.was_killed and a.began_s <= ended_s and a.ended_s >= began_s for a in self._all_away())

    def was_away_between(self, began_s: float, ended_s: float) -> bool:
        """Paused or killed."""
        return any(away.began_s <= ended_s and away.ended_s >= began_s for away in self._all_away())

    def is_back(self) -> None:
        """Note that the time without it has ended."""
        self.away.append(Away(self._away_since_s, monotonic(), self._was_killed))
        self._away_since_s = 0.0

    def _all_away(self) -> list[Away]:
        now = [Away(self._away_since_s, float("inf"), self._was_killed)] if self._away_since_s else []
        return [*self.away, *now]

    def _goes_away(self, *, was_killed: bool) -> None:
        self._away_since_s, self._was_killed = monotonic(), was_killed

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)
