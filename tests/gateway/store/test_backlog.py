"""The bounded queue in front of Redis, with a writer that fails on demand."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from gateway.store.backlog import BATCH, Backlog, BacklogMetrics, Room
from gateway.telemetry.metrics import Metrics


@dataclass(frozen=True, slots=True)
class Entry:
    number: int
    num_bytes: int = 1


@dataclass(slots=True)
class Writer:
    """Fails as often as it is told, and remembers what it was asked."""

    num_failures: int = 0
    calls: list[str] = field(default_factory=list)
    written: list[int] = field(default_factory=list)
    lost_numbers: list[int] = field(default_factory=list)

    async def write(self, batch: Sequence[Entry]) -> None:
        self._take("write", batch)

    async def write_again(self, batch: Sequence[Entry]) -> None:
        self._take("write_again", batch)

    def lost(self, entry: Entry) -> None:
        self.lost_numbers.append(entry.number)

    def _take(self, call: str, batch: Sequence[Entry]) -> None:
        self.calls.append(call)
        if self.num_failures:
            self.num_failures -= 1
            raise RedisConnectionError("away")
        self.written += [entry.number for entry in batch]


def backlog(writer: Writer, num_entries: int = 1_000, num_bytes: int = 1_000) -> Backlog[Entry]:
    metrics = Metrics()
    counts = BacklogMetrics(
        metrics.records_waiting, metrics.record_failures, metrics.records_not_written, failure_event="x"
    )
    return Backlog(writer, Room(num_entries, num_bytes), counts)


async def emptied(queue: Backlog[Entry]) -> None:
    working = asyncio.create_task(queue.watch())
    async with asyncio.timeout(30.0):
        while queue.num_waiting:  # noqa: ASYNC110 - what it waits for has no event
            await asyncio.sleep(0.01)
    working.cancel()


async def test_entries_are_written_in_batches_in_their_order() -> None:
    writer = Writer()
    queue = backlog(writer)
    for number in range(BATCH + 5):
        queue.submit(Entry(number))
    await emptied(queue)
    assert writer.written == list(range(BATCH + 5))
    assert writer.calls == ["write", "write"]


async def test_after_a_failure_the_same_entries_are_tried_again_as_such() -> None:
    writer = Writer(num_failures=1)
    queue = backlog(writer)
    queue.submit(Entry(1))
    await emptied(queue)
    assert writer.calls == ["write", "write_again"]
    assert writer.written == [1]


@pytest.mark.parametrize(("num_entries", "num_bytes"), [(3, 1_000), (1_000, 3)])
async def test_the_oldest_make_room_and_are_counted(num_entries: int, num_bytes: int) -> None:
    writer = Writer()
    queue = backlog(writer, num_entries, num_bytes)
    for number in range(5):
        queue.submit(Entry(number))
    assert (queue.num_waiting, queue.num_lost, writer.lost_numbers) == (3, 2, [0, 1])
    await queue.close()
    assert writer.written == [2, 3, 4]


async def test_what_cannot_be_written_at_the_end_is_lost_and_counted() -> None:
    writer = Writer(num_failures=1)
    queue = backlog(writer)
    for number in range(3):
        queue.submit(Entry(number))
    await queue.close()
    assert (queue.num_waiting, queue.num_lost, writer.written) == (0, 3, [])
