"""One attempt at one worker, from its place there until its answer begins."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeAlias

from gateway.errors import UpstreamDenied, UpstreamError, UpstreamTimeout, WorkerUnreachable
from gateway.flow.estimate import TurnEstimate
from gateway.flow.turn import Turn
from gateway.pool.breaker import Verdict
from gateway.pool.registry import RequestSize
from gateway.pool.reply import Reply
from gateway.pool.worker import Lease, Worker


class Begun(NamedTuple):
    """An answer that has begun, with the turn as it was sent."""

    turn: Turn
    reply: Reply
    estimate: TurnEstimate | None
    """What reads the answer of a worker that measures nothing."""


Begin: TypeAlias = Callable[[Turn, Worker], Awaitable[Begun]]
"""Sends a turn and waits for the first sign of its answer. Raises RequestError."""


class Place(NamedTuple):
    """A place at a worker, taken."""

    worker: Worker
    lease: Lease


class Attempt:
    """``turn`` as it goes to a worker. Counted in there from before this until ``end``."""

    def __init__(self, turn: Turn, place: Place, size: RequestSize, clock: Callable[[], float]) -> None:
        self.turn = turn
        self.worker = place.worker
        self.lease = place.lease
        self.size = size
        self._clock = clock
        self._started_s = clock()
        self._num_begun_before = place.worker.num_begun

    @property
    def was_silent(self) -> bool:
        """Whether no answer at all has begun at the worker since: it is not only busy."""
        return self.worker.num_begun == self._num_begun_before

    async def run(self, begin: Begin) -> Begun:
        """Send, and wait for the first sign of an answer. Raises RequestError; its place is free then."""
        try:
            begun = await begin(self.turn, self.worker)
        except BaseException as error:  # a cancelled attempt is counted out too
            if isinstance(error, WorkerUnreachable):
                self.worker.failed_probe(error)
            self.lease.end(verdict_of(error))
            raise
        self.worker.num_begun += 1
        self.observe()
        return begun

    def observe(self) -> None:
        """Remember how long it took to begin, or that after so long it had not."""
        size = self.size
        if not size.num_chars:  # where nothing can be raced, nothing is measured
            return
        times = self.worker.begin_times(size.model, is_streaming=size.is_streaming)
        times.observe(size.num_chars, self._clock() - self._started_s)


def verdict_of(error: BaseException) -> Verdict:
    """4xx, 429 and 503 say nothing about a worker's health (sglang#25811)."""
    if isinstance(error, UpstreamDenied):
        return "neutral"
    return "failure" if isinstance(error, UpstreamError | UpstreamTimeout) else "neutral"
