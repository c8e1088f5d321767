"""What a gateway writes to the streams of experiments: in the background, bounded, each entry exactly once.

The entries of one experiment go in batches to one script, which numbers them: what was carried out although
its answer timed out is not carried out again. An exposure is written by the first gateway that brings it.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

import orjson
from redis.asyncio import Redis

from gateway.outcomes.entry import (
    Exposure,
    TurnOutcome,
    encode_entry,
    exposed_key,
    outcomes_key,
    written_key,
)
from gateway.store.backlog import Backlog, BacklogMetrics, Room
from gateway.telemetry.metrics import Metrics

MAX_WAITING = 5_000
MAX_WAITING_BYTES = 16 * 1024 * 1024
MAX_UNITS = 20_000
"""Units that a gateway remembers to have brought; one that it forgets costs a look at Redis."""
WRITTEN_TTL_S = 3_600
"""Longer than any pause between two attempts."""

WRITE = """
-- KEYS: the stream; the number of this gateway's last entry; the units' keys.
-- ARGV: bound of the stream, its lifetime and that of the number in seconds,
-- entries as JSON: {n: number, unit: index of its key or 0, fields: {name, value, ...}}.
local last = tonumber(redis.call('GET', KEYS[2]) or '0')
for _, entry in ipairs(cjson.decode(ARGV[4])) do
  if entry.n > last then
    last = entry.n
    local is_first = entry.unit == 0 or redis.call('SET', KEYS[entry.unit], '1', 'NX', 'EX', ARGV[2])
    if is_first then
      redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[1], '*', unpack(entry.fields))
    else
      redis.call('EXPIRE', KEYS[entry.unit], ARGV[2])
    end
  end
end
redis.call('EXPIRE', KEYS[1], ARGV[2])
redis.call('SET', KEYS[2], last, 'EX', ARGV[3])
"""


class Experiment(NamedTuple):
    """Whose stream an entry belongs to."""

    id: str
    version: int


@dataclass(frozen=True, slots=True)
class Bounds:
    """Of a stream: entries, and seconds after its last one."""

    max_entries: int
    ttl_s: int


@dataclass(frozen=True, slots=True)
class _Waiting:
    experiment: Experiment
    number: int
    entry: Exposure | TurnOutcome
    is_sticky: bool

    @property
    def num_bytes(self) -> int:
        return 512  # some twelve numbers and their names


class Ledger:
    """Takes exposures and outcomes; none of its callers waits for Redis."""

    def __init__(self, redis: Redis, name: str, bounds: Bounds, metrics: Metrics) -> None:
        """``name`` is unique over all processes that write to this Redis, this one's predecessors too."""
        self._numbers = count(1)
        self._units: OrderedDict[tuple[Experiment, str], None] = OrderedDict()
        self._backlog = Backlog(
            _StreamWriter(redis, name, bounds, self._units),
            Room(MAX_WAITING, MAX_WAITING_BYTES),
            BacklogMetrics(
                metrics.outcomes_waiting,
                metrics.outcome_failures,
                metrics.outcomes_not_written,
                failure_event="outcomes_not_written",
            ),
        )

    @property
    def num_waiting(self) -> int:
        return self._backlog.num_waiting

    def expose(self, experiment: Experiment, exposure: Exposure, *, is_sticky: bool) -> None:
        """Note that a unit has come under an arm. One that this gateway has brought before costs nothing.

        A unit that does not stick is one turn, so there is nothing to be remembered of it.
        """
        if is_sticky:
            key = experiment, exposure.unit
            if key in self._units:
                self._units.move_to_end(key)
                return
            self._units[key] = None
            if len(self._units) > MAX_UNITS:
                self._units.popitem(last=False)
        self._submit(experiment, exposure, is_sticky=is_sticky)

    def add(self, experiment: Experiment, outcome: TurnOutcome) -> None:
        """Note what was measured of a turn."""
        self._submit(experiment, outcome, is_sticky=False)

    async def watch(self) -> None:
        """Write what comes, until cancelled."""
        await self._backlog.watch()

    async def close(self) -> None:
        """Write what is left, once; what Redis does not take now is lost and counted."""
        await self._backlog.close()

    def _submit(self, experiment: Experiment, entry: Exposure | TurnOutcome, *, is_sticky: bool) -> None:
        self._backlog.submit(_Waiting(experiment, next(self._numbers), entry, is_sticky))


class _StreamWriter:
    """Writes a batch, each experiment's part of it at once."""

    def __init__(
        self,
        redis: Redis,
        name: str,
        bounds: Bounds,
        units: OrderedDict[tuple[Experiment, str], None],
    ) -> None:
        self._script = redis.register_script(WRITE)
        self._name = name
        self._bounds = bounds
        self._units = units

    async def write(self, batch: Sequence[_Waiting]) -> None:
        parts: dict[Experiment, list[_Waiting]] = defaultdict(list)
        for waiting in batch:
            parts[waiting.experiment].append(waiting)
        for experiment, part in parts.items():
            await self._write_part(experiment, part)

    async def write_again(self, batch: Sequence[_Waiting]) -> None:
        """The numbers tell what is there already."""
        await self.write(batch)

    def lost(self, entry: _Waiting) -> None:
        """Let the unit's next turn bring the exposure that fell out."""
        if isinstance(entry.entry, Exposure):
            self._units.pop((entry.experiment, entry.entry.unit), None)

    async def _write_part(self, experiment: Experiment, part: Sequence[_Waiting]) -> None:
        keys = [outcomes_key(*experiment), written_key(*experiment, self._name)]
        entries = []
        for waiting in part:
            unit = 0
            if waiting.is_sticky:
                keys.append(exposed_key(*experiment, waiting.entry.unit))
                unit = len(keys)
            fields = [part for pair in encode_entry(waiting.entry).items() for part in pair]
            entries.append({"n": waiting.number, "unit": unit, "fields": fields})
        bounds = self._bounds
        await self._script(
            keys=keys, args=[bounds.max_entries, bounds.ttl_s, WRITTEN_TTL_S, orjson.dumps(entries)]
        )
