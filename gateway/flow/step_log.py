"""Steps of turns at opaque workers, on their way to ``ng:trace:ID`` as a native worker writes them.

Written in the background, at least once and, by ids of our own, never twice; while Redis is away they wait
in a bounded queue, and what falls out of it is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from gateway.settings import GatewaySettings
from gateway.store.backlog import Backlog, BacklogMetrics, Room
from gateway.telemetry.metrics import Metrics
from worker.protocol import StepRecord, pack_steps, trace_key

MAX_WAITING_ENTRIES = 10_000
MAX_WAITING_BYTES = 32 * 1024 * 1024
MAX_ENTRIES = 20_000
"""Bound of one turn's stream, as native workers have it."""
ENTRY_BYTES = 256
"""About what an entry takes beside its columns."""
_IS_THERE = "equal or smaller than the target stream top item"


@dataclass(frozen=True, slots=True)
class _Entry:
    key: str
    id: str
    fields: dict[str, bytes]
    num_steps: int

    @property
    def num_bytes(self) -> int:
        return ENTRY_BYTES + sum(map(len, self.fields.values()))


class StepLog:
    """Batches of steps and the ends of choices, in the order in which they came."""

    def __init__(
        self, redis: Redis, settings: GatewaySettings, metrics: Metrics, clock: Callable[[], float]
    ) -> None:
        self._clock = clock
        self._last_ms, self._last_number = 0, 0
        self._backlog = Backlog(
            _StepWriter(redis, settings.record_ttl_s, metrics),
            Room(MAX_WAITING_ENTRIES, MAX_WAITING_BYTES),
            BacklogMetrics(
                metrics.estimates_waiting,
                metrics.estimate_failures,
                metrics.estimates_not_written,
                failure_event="estimated_steps_not_written",
            ),
        )

    def steps(self, turn_id: str, choice: int, first_step: int, records: list[StepRecord]) -> None:
        """Queue consecutive steps of a choice."""
        self._submit(turn_id, pack_steps(first_step, records, choice=choice), len(records))

    def end(self, turn_id: str, choice: int, num_steps: int, finish_reason: str) -> None:
        """Queue the end of a choice."""
        fields = {"end": finish_reason, "choice": str(choice), "n": str(num_steps)}
        self._submit(turn_id, {name: value.encode() for name, value in fields.items()}, 0)

    async def watch(self) -> None:
        """Write what comes, until cancelled."""
        await self._backlog.watch()

    async def close(self) -> None:
        """Write what is left, once; what Redis does not take now is lost and counted."""
        await self._backlog.close()

    def _submit(self, turn_id: str, fields: dict[str, bytes], num_steps: int) -> None:
        self._backlog.submit(_Entry(trace_key(turn_id), self._new_id(), fields, num_steps))

    def _new_id(self) -> str:
        """An id above every earlier one, so that a second sending is recognised."""
        now_ms = int(self._clock() * 1000)
        is_later = now_ms > self._last_ms
        self._last_ms = max(now_ms, self._last_ms)
        self._last_number = 0 if is_later else self._last_number + 1
        return f"{self._last_ms}-{self._last_number}"


class _StepWriter:
    """Writes a batch of entries; one that is there already is left as it is."""

    def __init__(self, redis: Redis, ttl_s: int, metrics: Metrics) -> None:
        self._redis = redis
        self._ttl_s = ttl_s
        self._metrics = metrics

    async def write(self, batch: Sequence[_Entry]) -> None:
        async with self._redis.pipeline(transaction=False) as pipe:
            for entry in batch:
                fields = cast(dict[Any, Any], entry.fields)
                pipe.xadd(entry.key, fields, id=entry.id, maxlen=MAX_ENTRIES, approximate=True)
            for key in dict.fromkeys(entry.key for entry in batch):
                pipe.expire(key, self._ttl_s)
            results = await pipe.execute(raise_on_error=False)
        for result in results:
            if isinstance(result, Exception) and not _is_settled(result):
                raise result

    async def write_again(self, batch: Sequence[_Entry]) -> None:
        await self.write(batch)

    def lost(self, entry: _Entry) -> None:
        self._metrics.estimated_steps_lost.inc(entry.num_steps)


def _is_settled(result: Exception) -> bool:
    """Whether sending the entry again changes nothing: it is there, or its key holds something else."""
    return isinstance(result, ResponseError) and (_IS_THERE in str(result) or "WRONGTYPE" in str(result))
