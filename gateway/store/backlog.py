"""A bounded queue in front of Redis, and the task that empties it. Whoever queues never waits.

What Redis does not take waits and is tried again; where there is no room the oldest falls out and is counted.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from prometheus_client import Counter, Gauge
from redis.exceptions import RedisError

from gateway.telemetry.logs import log

BATCH = 64
GATHER_S = 0.02
"""A batch costs little more than a single entry, so the first one waits for others."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0

logger = logging.getLogger(__name__)


class Queued(Protocol):
    """What can wait in a backlog."""

    @property
    def num_bytes(self) -> int: ...


T = TypeVar("T", bound=Queued)
T_contra = TypeVar("T_contra", bound=Queued, contravariant=True)


class BatchWriter(Protocol[T_contra]):
    """Writes to Redis, all or nothing. Raises RedisError or OSError."""

    async def write(self, batch: Sequence[T_contra]) -> None: ...

    async def write_again(self, batch: Sequence[T_contra]) -> None:
        """The same after a failure: what timed out may have been carried out, and nothing comes twice."""

    def lost(self, entry: T_contra) -> None:
        """This entry fell out and will never be written."""


@dataclass(frozen=True, slots=True)
class Room:
    """How much may wait."""

    num_entries: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class BacklogMetrics:
    """What the queue counts, and the log's event for a batch that was not taken."""

    waiting: Gauge
    failures: Counter
    not_written: Counter
    failure_event: str


class Backlog(Generic[T]):
    """Entries on their way to Redis, in the order in which they came."""

    def __init__(self, writer: BatchWriter[T], room: Room, metrics: BacklogMetrics) -> None:
        self._writer = writer
        self._room = room
        self._metrics = metrics
        self._waiting: deque[T] = deque()
        self._num_bytes = 0
        self._arrival = asyncio.Event()
        self.num_lost = 0

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    def submit(self, entry: T) -> None:
        """Queue an entry. The oldest make room where there is none."""
        self._waiting.append(entry)
        self._num_bytes += entry.num_bytes
        while len(self._waiting) > self._room.num_entries or self._num_bytes > self._room.num_bytes:
            self._lose()
        self._metrics.waiting.set(len(self._waiting))
        self._arrival.set()

    async def watch(self) -> None:
        """Write what comes, until cancelled."""
        pause_s = FIRST_PAUSE_S
        is_retry = False
        while True:
            await self._arrival.wait()
            await asyncio.sleep(GATHER_S)
            try:
                await self._write(self._writer.write_again if is_retry else self._writer.write)
                pause_s, is_retry = FIRST_PAUSE_S, False
            except (RedisError, OSError) as error:
                self._metrics.failures.inc()
                event, waiting = self._metrics.failure_event, self.num_waiting
                log(logger, logging.WARNING, event, reason=str(error), waiting=waiting)
                await asyncio.sleep(pause_s)
                pause_s, is_retry = min(2 * pause_s, LONGEST_PAUSE_S), True

    async def close(self) -> None:
        """Write what is left, once; what Redis does not take now is lost and counted."""
        try:
            while self._waiting:
                await self._write(self._writer.write_again)
        except (RedisError, OSError):
            while self._waiting:
                self._lose()

    async def _write(self, write: Callable[[Sequence[T]], Awaitable[None]]) -> None:
        batch = list(self._waiting)[:BATCH]
        await write(batch)
        written = set(map(id, batch))
        while self._waiting and id(self._waiting[0]) in written:
            self._take()
        self._metrics.waiting.set(len(self._waiting))
        if not self._waiting:
            self._arrival.clear()

    def _take(self) -> T:
        entry = self._waiting.popleft()
        self._num_bytes -= entry.num_bytes
        return entry

    def _lose(self) -> None:
        self._writer.lost(self._take())
        self.num_lost += 1
        self._metrics.not_written.inc()
