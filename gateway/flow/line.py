"""Who waits for a worker, and who of them is next.

One queue a bucket. The more urgent is first, and every ``ageing_s`` of waiting is worth one step of urgency,
so that nobody waits for ever; among the equally urgent the buckets take turns, and within a bucket they come
in the order of arrival.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from gateway.flow.attempt import Place
from gateway.pool.worker import Worker

K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a turn needs of a worker. ``tried`` are those that it was sent to."""

    model: str
    bucket: int
    priority: int
    since_s: float
    """When it came first, by the monotonic clock; a retry keeps it."""
    affinity: int | None = None
    tried: frozenset[Worker] = frozenset()


@dataclass(frozen=True, slots=True, eq=False)
class Waiter:
    """One turn that waits; ``granted`` gets its place, or why there will be none."""

    wanted: Wanted
    granted: asyncio.Future[Place]


class _Lane(NamedTuple):
    """Those that wait for the same, in order of arrival."""

    bucket: int
    model: str
    priority: int
    tried: frozenset[Worker]


class Line:
    """The waiting turns of all buckets."""

    def __init__(self, ageing_s: float) -> None:
        self._ageing_s = ageing_s
        self._lanes: dict[_Lane, deque[Waiter]] = {}
        self._num_by_bucket: Counter[int] = Counter()
        self._num_by_model: Counter[str] = Counter()
        self._num_served = 0
        self._served_at: dict[int, int] = {}
        """When each bucket was last served, as a count of all that were."""

    def __len__(self) -> int:
        return self._num_by_bucket.total()

    def num_in(self, bucket: int) -> int:
        return self._num_by_bucket[bucket]

    def waits_for(self, model: str) -> bool:
        return self._num_by_model[model] > 0

    @property
    def longest(self) -> int:
        """The number that wait in the fullest bucket."""
        return max(self._num_by_bucket.values(), default=0)

    @property
    def least_priority(self) -> int | None:
        return min((lane.priority for lane in self._lanes), default=None)

    def num_before(self, priority: int) -> int:
        """Return how many wait that are at least as urgent."""
        return sum(len(waiting) for lane, waiting in self._lanes.items() if lane.priority >= priority)

    def join(self, waiter: Waiter) -> None:
        self._lanes.setdefault(_lane_of(waiter), deque()).append(waiter)
        self._num_by_bucket[waiter.wanted.bucket] += 1
        self._num_by_model[waiter.wanted.model] += 1

    def leave(self, waiter: Waiter) -> None:
        """Free the waiter's place in the line at once; nothing where it has none."""
        lane = _lane_of(waiter)
        waiting = self._lanes.get(lane)
        if waiting is None or waiter not in waiting:
            return
        waiting.remove(waiter)
        if not waiting:
            del self._lanes[lane]
        _count_out(self._num_by_bucket, waiter.wanted.bucket)
        _count_out(self._num_by_model, waiter.wanted.model)

    def serve(self, waiter: Waiter) -> None:
        """The waiter has got its place at a worker."""
        self.leave(waiter)
        self._num_served += 1
        self._served_at[waiter.wanted.bucket] = self._num_served

    def heads(self, now_s: float) -> Iterator[Waiter]:
        """Give the first of each lane, the next in turn first."""

        def order(waiter: Waiter) -> tuple[float, int, float]:
            wanted = waiter.wanted
            aged = (now_s - wanted.since_s) // self._ageing_s
            return -(wanted.priority + aged), self._served_at.get(wanted.bucket, 0), wanted.since_s

        yield from sorted((waiting[0] for waiting in self._lanes.values()), key=order)

    def last_below(self, bucket: int, priority: int) -> Waiter | None:
        """Return the last come of the bucket's least urgent; None where all are as urgent as ``priority``."""
        lanes = [lane for lane in self._lanes if lane.bucket == bucket and lane.priority < priority]
        if not lanes:
            return None
        least = min(lane.priority for lane in lanes)
        last = [self._lanes[lane][-1] for lane in lanes if lane.priority == least]
        return max(last, key=lambda waiter: waiter.wanted.since_s)


def _count_out(counts: Counter[K], key: K) -> None:
    """Keep no zeros: models are named by clients."""
    counts[key] -= 1
    if counts[key] == 0:
        del counts[key]


def _lane_of(waiter: Waiter) -> _Lane:
    wanted = waiter.wanted
    return _Lane(wanted.bucket, wanted.model, wanted.priority, wanted.tried)
