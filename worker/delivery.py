"""Gets trace entries to Redis in order: directly, or through the spill file while Redis is away."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from worker.redis_streams import RedisStreams, StoreAwayError
from worker.spill import SpillFile, TraceEntry

log = logging.getLogger(__name__)

_SEND_ENTRIES = 256
_FIRST_RETRY_S = 0.25
_LAST_RETRY_S = 5.0


class Delivery:
    """Used by the writer's thread alone; other threads may read the counters. Counts are steps."""

    def __init__(self, streams: RedisStreams, spill: SpillFile | None) -> None:
        self.num_written = 0
        self.num_spilled = 0
        self.num_lost = 0
        self.num_reconnects = 0
        self._streams = streams
        self._spill = spill
        self._is_away = False
        self._retry_at_s = 0.0
        self._retry_s = _FIRST_RETRY_S

    @property
    def spill_bytes(self) -> int:
        return self._spill.num_bytes if self._spill is not None else 0

    def retry_in_s(self) -> float:
        """Seconds until ``deliver`` should be called even if nothing new has come."""
        return self._retry_at_s - time.monotonic() if self.spill_bytes else _LAST_RETRY_S

    def deliver(self, entries: Sequence[TraceEntry]) -> None:
        """Send the entries, or queue them behind what waits in the spill file and send the oldest of it."""
        if not self.spill_bytes:
            entries = self._send_directly(entries)
        for entry in entries:
            self._keep(entry)
        if self._spill is not None and self._spill.num_bytes and not self._must_wait():
            frames = self._spill.peek(_SEND_ENTRIES)
            if self._send([entry for _, entry in frames], is_repeat=True):
                self._spill.advance(sum(size for size, _ in frames))

    def close(self) -> None:
        self._streams.close()
        if self._spill is not None:
            self._spill.close()

    def _send_directly(self, entries: Sequence[TraceEntry]) -> Sequence[TraceEntry]:
        """Return what could not be sent."""
        while entries and not self._must_wait() and self._send(entries[:_SEND_ENTRIES], is_repeat=False):
            entries = entries[_SEND_ENTRIES:]
        return entries

    def _keep(self, entry: TraceEntry) -> None:
        if self._spill is not None and self._spill.append(entry):
            self.num_spilled += entry.num_steps
        else:
            self.num_lost += entry.num_steps

    def _send(self, entries: Sequence[TraceEntry], *, is_repeat: bool) -> bool:
        try:
            num_lost = self._streams.send(entries, is_repeat=is_repeat)
        except StoreAwayError as error:
            if not self._is_away:
                log.warning("redis is away, traces go to the spill file: %s", error)
            self._is_away = True
            self._retry_at_s = time.monotonic() + self._retry_s
            self._retry_s = min(2 * self._retry_s, _LAST_RETRY_S)
            return False
        if self._is_away:
            self.num_reconnects += 1
            log.info("redis is back")
        self._is_away = False
        self._retry_s = _FIRST_RETRY_S
        self.num_written += sum(entry.num_steps for entry in entries) - num_lost
        self.num_lost += num_lost
        return True

    def _must_wait(self) -> bool:
        return self._is_away and time.monotonic() < self._retry_at_s
