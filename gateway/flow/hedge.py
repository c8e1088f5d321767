"""A worker that stays silent for long is raced by another, before the first byte; one of them answers.

The other's connection is closed before anything of its answer is read on: no client ever gets two answers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from gateway.flow.attempt import Attempt, Begin, Begun
from gateway.telemetry.logs import log

if TYPE_CHECKING:
    from gateway.flow.deps import Deps

Another: TypeAlias = Callable[[], Attempt | None]
"""Gives an attempt at a worker that was not tried; None where none has room, or the turn was sent enough."""
Winner: TypeAlias = tuple[Attempt, Begun]
Began: TypeAlias = Literal["first", "second", "neither"]
_Running: TypeAlias = dict[asyncio.Task[Begun], Attempt]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Race:
    """What the attempts of one turn share."""

    begin: Begin
    another: Another
    deps: Deps
    running: _Running = field(default_factory=dict)

    def start(self, attempt: Attempt) -> asyncio.Task[Begun]:
        task = asyncio.create_task(attempt.run(self.begin), name="attempt")
        self.running[task] = attempt
        return task

    async def first_to_begin(self, first: Attempt, patience_s: float | None) -> Winner:
        """Return the answer that begins. Raises RequestError, the first worker's, where none does."""
        if patience_s is None:
            return first, await first.run(self.begin)
        try:
            winner = await self._won(first, patience_s)
            begun = winner.result()
        except BaseException:
            await _end(self.running)
            raise
        attempt = self.running.pop(winner)
        try:
            await _end(self.running)
        except BaseException:  # the client left in this very moment
            begun.reply.close()
            attempt.lease.end("neutral")
            raise
        return attempt, begun

    async def _won(self, first: Attempt, patience_s: float) -> asyncio.Task[Begun]:
        """Return the task that has begun, or the first one where none has."""
        own = self.start(first)
        await asyncio.wait([own], timeout=patience_s)
        if own.done():
            return own
        second = self.another() if self.deps.pool.hedges.spend() else None
        if second is None:
            await asyncio.wait([own])
            return own
        other = self.start(second)
        winner = await _succeeded(self.running)
        began: Began = "neither" if winner is None else "first" if winner is own else "second"
        self.deps.metrics.hedges.labels(began).inc()
        if winner is other:
            _note_silence(first, self.deps)
        return winner or own


async def _succeeded(running: Mapping[asyncio.Task[Begun], Attempt]) -> asyncio.Task[Begun] | None:
    """Return the one that has begun, of two in the same moment the earlier; None where all have failed."""
    pending = set(running)
    while pending:
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        for task in running:
            if task in done and not task.cancelled() and task.exception() is None:
                return task
    return None


def _note_silence(first: Attempt, deps: Deps) -> None:
    """The first worker lost. Where nothing at all has begun there meanwhile it is taken out."""
    first.observe()
    if first.was_silent:
        first.worker.breaker.trip()
        deps.metrics.silent_workers.labels(first.worker.name).inc()
        log(logger, logging.WARNING, "worker_silent", worker=first.worker.name, turn=first.turn.id)


async def _end(running: Mapping[asyncio.Task[Begun], Attempt]) -> None:
    """Close what did not win: what still waits, and what began in the same moment."""
    if not running:
        return
    for task, attempt in running.items():
        if task.done() and not task.cancelled() and task.exception() is None:
            task.result().reply.close()
        task.cancel()
        attempt.lease.end("neutral")  # it may be cancelled before it runs at all
    await asyncio.wait(running)
