"""Writes every step to Redis Streams, beside the decode loop: no token ever waits for Redis.

Steps are collected per choice and packed by a thread of their own into entries of at most 32 steps or 250 ms.
Redis away or slow: entries go to a bounded spill file and are sent, in order, when it is back, also after a
restart. What fits neither the queue nor the file is counted as lost.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from worker.delivery import Delivery
from worker.protocol import StepRecord, pack_steps, trace_key
from worker.redis_streams import RedisStreams
from worker.spill import SpillFile, TraceEntry

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TraceOptions:
    """Bounds of the writer. ``ttl_s`` and ``max_entries`` bound each turn's stream in Redis."""

    spill_dir: Path
    spill_max_bytes: int = 64 << 20
    max_queued_steps: int = 65_536
    max_entries: int = 20_000
    ttl_s: float = 7 * 86_400.0
    timeout_s: float = 1.0
    batch_steps: int = 32
    batch_s: float = 0.25


@dataclass(frozen=True, slots=True)
class TraceCounters:
    """What became of the steps. ``queued`` and ``spill_bytes`` are levels, the others only grow."""

    written: int = 0
    queued: int = 0
    spilled: int = 0
    lost: int = 0
    reconnects: int = 0
    spill_bytes: int = 0


@dataclass(slots=True)
class _Batch:
    """Consecutive steps of one choice, or its end."""

    key: str
    choice: int
    first_step: int = 0
    records: list[StepRecord] = field(default_factory=list)
    due_s: float = 0.0
    end: str | None = None

    def fields(self) -> dict[str, bytes]:
        if self.end is None:
            return pack_steps(self.first_step, self.records, choice=self.choice)
        return {
            "end": self.end.encode(),
            "choice": str(self.choice).encode(),
            "n": str(self.first_step).encode(),
        }


class ChoiceTrace:
    """The trace of one choice; ``add`` costs about a microsecond and never blocks on I/O."""

    def __init__(self, writer: TraceWriter, turn_id: str, choice: int) -> None:
        self._writer = writer
        self._key = trace_key(turn_id)
        self._choice = choice
        self._num_steps = 0
        self._batch: _Batch | None = None
        self._has_ended = False

    def add(self, record: StepRecord) -> None:
        """Record the next emitted step."""
        self._batch = self._writer._add(self._batch, self._key, self._choice, self._num_steps, record)
        self._num_steps += 1

    def end(self, finish_reason: str) -> None:
        """Mark the end (``stop``, ``length``, ``cancelled``, ``error``); later calls do nothing."""
        if self._has_ended:
            return
        self._has_ended = True
        end = _Batch(self._key, self._choice, self._num_steps, end=finish_reason)
        self._writer._end(self._batch, end)
        self._batch = None


class TraceWriter:
    """Owns the queue and the thread that empties it. Thread-safe."""

    def __init__(
        self, redis_url: str, options: TraceOptions, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._options = options
        self._clock = clock
        streams = RedisStreams(
            redis_url, timeout_s=options.timeout_s, max_entries=options.max_entries, ttl_s=options.ttl_s
        )
        self._delivery = Delivery(streams, _claim_spill_file(options))
        self._wake = threading.Condition()
        self._open: dict[int, _Batch] = {}
        self._ready: deque[_Batch] = deque()
        self._num_queued = 0
        self._num_overflowed = 0
        self._is_stopping = False
        self._last_id = (0, 0)
        self._thread = threading.Thread(target=self._run, name="trace", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def open(self, turn_id: str, choice: int = 0) -> ChoiceTrace:
        """Begin the trace of one choice of a turn."""
        return ChoiceTrace(self, turn_id, choice)

    def stop(self, timeout_s: float = 5.0) -> None:
        """Send or spill what is queued, and end the thread."""
        with self._wake:
            self._is_stopping = True
            self._wake.notify()
        self._thread.join(timeout_s)

    def counters(self) -> TraceCounters:
        delivery = self._delivery
        return TraceCounters(
            written=delivery.num_written,
            queued=self._num_queued,
            spilled=delivery.num_spilled,
            lost=delivery.num_lost + self._num_overflowed,
            reconnects=delivery.num_reconnects,
            spill_bytes=delivery.spill_bytes,
        )

    # From ChoiceTrace, on the caller's thread.

    def _add(
        self, batch: _Batch | None, key: str, choice: int, step: int, record: StepRecord
    ) -> _Batch | None:
        with self._wake:
            if batch is not None and id(batch) not in self._open:
                batch = None  # it was due, and the thread has taken it
            if self._num_queued >= self._options.max_queued_steps:
                self._num_overflowed += 1
                self._close(batch)  # the next batch begins behind the gap
                return None
            if batch is None:
                batch = _Batch(key, choice, step, due_s=time.monotonic() + self._options.batch_s)
                self._open[id(batch)] = batch
                if len(self._open) == 1:
                    self._wake.notify()
            batch.records.append(record)
            self._num_queued += 1
            if len(batch.records) < self._options.batch_steps:
                return batch
            self._close(batch)
            return None

    def _end(self, batch: _Batch | None, end: _Batch) -> None:
        with self._wake:
            self._close(batch)
            self._ready.append(end)
            self._wake.notify()

    def _close(self, batch: _Batch | None) -> None:
        if batch is not None and self._open.pop(id(batch), None) is not None:
            self._ready.append(batch)
            self._wake.notify()

    # On the writer's thread.

    def _run(self) -> None:
        while self._work():
            pass
        self._delivery.close()

    def _work(self) -> bool:
        """Deliver what is due; False once it has done so while stopping."""
        with self._wake:
            pause_s = self._pause_s()
            if pause_s > 0 and not self._ready and not self._is_stopping:
                self._wake.wait(pause_s)
            is_stopping = self._is_stopping
            batches = self._take(everything=is_stopping)
        entries = [
            TraceEntry(batch.key, self._new_id(), batch.fields(), len(batch.records)) for batch in batches
        ]
        self._delivery.deliver(entries)
        with self._wake:
            self._num_queued -= sum(entry.num_steps for entry in entries)
        return not is_stopping

    def _pause_s(self) -> float:
        pause_s = self._delivery.retry_in_s()
        if self._open:
            oldest = next(iter(self._open.values()))
            pause_s = min(pause_s, oldest.due_s - time.monotonic())
        return pause_s

    def _take(self, *, everything: bool) -> list[_Batch]:
        now_s = time.monotonic()
        due = [key for key, batch in self._open.items() if everything or batch.due_s <= now_s]
        for key in due:
            self._ready.append(self._open.pop(key))
        batches = list(self._ready)
        self._ready.clear()
        return batches

    def _new_id(self) -> str:
        """An id above every earlier one, so that a second sending is recognised."""
        now_ms = int(self._clock() * 1000)
        last_ms, last = self._last_id
        self._last_id = (now_ms, 0) if now_ms > last_ms else (last_ms, last + 1)
        return f"{self._last_id[0]}-{self._last_id[1]}"


def _claim_spill_file(options: TraceOptions) -> SpillFile | None:
    try:
        return SpillFile.claim(options.spill_dir, options.spill_max_bytes)
    except OSError as error:
        log.error("no spill file, so traces are lost while redis is away: %s", error)
        return None
