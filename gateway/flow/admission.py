"""In front of the pool: a turn gets a place at a worker, waits for one, or is refused with a reason.

Without ``NG_WORKER_CONCURRENCY`` no worker is ever full and nobody waits here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from gateway.errors import QueueFull, RequestError
from gateway.flow.attempt import Place
from gateway.flow.line import Line, Waiter, Wanted
from gateway.flow.service_rate import ServiceRate
from gateway.pool.registry import Pool
from gateway.pool.worker import nobody
from gateway.telemetry.metrics import Metrics

SURELY = 2.0
"""A deadline will surely be missed where twice the time until it is expected."""
Refusal: TypeAlias = Literal["full", "late", "timeout", "displaced"]


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """``limit`` of a bucket's queue, 0 for none; how long one waits at most; what waiting is worth."""

    limit: int
    timeout_s: float
    ageing_s: float


class Admission:
    """Gives out the places at the workers."""

    def __init__(
        self, pool: Pool, settings: QueueSettings, metrics: Metrics, clock: Callable[[], float]
    ) -> None:
        self._pool = pool
        self._settings = settings
        self._metrics = metrics
        self._clock = clock
        self._line = Line(settings.ageing_s)
        self._rate = ServiceRate(clock)
        self.on_change: Callable[[], None] = nobody
        """Called when the line has become longer or shorter."""
        if pool.is_bounded:
            pool.on_end = self._ended
            pool.on_change = self.advance

    @property
    def num_waiting(self) -> int:
        return len(self._line)

    @property
    def fill(self) -> float:
        """The fullest bucket's share of its limit, 0 to 1."""
        return self._line.longest / self._settings.limit if self._settings.limit else 0.0

    @property
    def least_priority(self) -> int | None:
        """The least urgent that wait; None where nobody does."""
        return self._line.least_priority

    def retry_after_s(self, priority: int) -> float:
        """Return when one so urgent may expect a place."""
        return self._rate.retry_after_s(self._line.num_before(priority) + 1)

    def take(self, wanted: Wanted) -> Place:
        """Take a place now.

        Raises QueueFull where every worker is full or others wait already; NoWorkers, ModelNotFound.
        """
        if self._line.waits_for(wanted.model):
            raise self._refused(wanted)
        try:
            return self._take(wanted)
        except QueueFull:
            raise self._refused(wanted) from None

    async def place(self, wanted: Wanted) -> Place:
        """Take a place; wait for one where every worker is full.

        Raises QueueFull where the queue is full, its deadline has come or will surely be missed; NoWorkers
        and ModelNotFound where waiting would not help.
        """
        try:
            return self.take(wanted)
        except QueueFull:
            if self._settings.limit == 0:
                self._count("full")
                raise
        self._require_room(wanted)
        return await self._waited(wanted)

    def advance(self) -> None:
        """Give free places to those who are next; tell those whom nobody can serve any more."""
        while len(self._line) and self._advance_one():
            pass

    def _advance_one(self) -> bool:
        for waiter in self._line.heads(self._clock()):
            if waiter.granted.done():  # cancelled, and not yet gone
                self._line.leave(waiter)
                return True
            try:
                place = self._take(waiter.wanted)
            except QueueFull:
                continue
            except RequestError as error:
                self._line.leave(waiter)
                waiter.granted.set_exception(error)
            else:
                self._line.serve(waiter)
                waiter.granted.set_result(place)
            self._note_length(waiter.wanted.bucket)
            return True
        return False

    async def _waited(self, wanted: Wanted) -> Place:
        waiter = Waiter(wanted, asyncio.get_running_loop().create_future())
        self._line.join(waiter)
        self._note_length(wanted.bucket)
        self.advance()  # those before may be waiting for other workers than this one could have
        left_s = wanted.since_s + self._settings.timeout_s - self._clock()
        try:
            async with asyncio.timeout(left_s):
                place = await waiter.granted
        except BaseException as error:
            self._line.leave(waiter)
            self._note_length(wanted.bucket)
            _give_back(waiter)  # it may have got its place in the very moment in which it left
            if isinstance(error, TimeoutError):
                self._count("timeout")
                raise self._refused(wanted) from None
            raise
        self._metrics.queue_seconds.observe(self._clock() - wanted.since_s)
        return place

    def _require_room(self, wanted: Wanted) -> None:
        """Raise QueueFull where the turn cannot wait. One more urgent takes the place of the least urgent."""
        expected_s = self._rate.wait_s(self._line.num_before(wanted.priority) + 1)
        if expected_s is not None and expected_s > SURELY * self._settings.timeout_s:
            self._count("late")
            raise self._refused(wanted)
        if self._line.num_in(wanted.bucket) < self._settings.limit:
            return
        displaced = self._line.last_below(wanted.bucket, wanted.priority)
        if displaced is None:
            self._count("full")
            raise self._refused(wanted)
        self._line.leave(displaced)
        self._count("displaced")
        if not displaced.granted.done():
            displaced.granted.set_exception(self._refused(displaced.wanted))

    def _take(self, wanted: Wanted) -> Place:
        worker = self._pool.pick(wanted.model, wanted.bucket, wanted.tried, wanted.affinity)
        return Place(worker, worker.take(wanted.bucket))

    def _ended(self) -> None:
        self._rate.observe()
        self.advance()

    def _refused(self, wanted: Wanted) -> QueueFull:
        return QueueFull(retry_after_s=self.retry_after_s(wanted.priority))

    def _count(self, reason: Refusal) -> None:
        self._metrics.queue_refusals.labels(reason).inc()

    def _note_length(self, bucket: int) -> None:
        self._metrics.queue_waiting.labels(str(bucket)).set(self._line.num_in(bucket))
        self.on_change()


def _give_back(waiter: Waiter) -> None:
    granted = waiter.granted
    if granted.done() and not granted.cancelled() and granted.exception() is None:
        granted.result().lease.end("neutral")
