"""Stage 5: the bucket, from the s that is expected of the turn's task.

A token's s cannot be foreseen, a turn's can: its task explains most of the variance. The expectation is the
task's running mean, which lives in Redis so that all gateways learn together; each keeps a copy and never
waits for Redis while it serves.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, cast

from redis.asyncio import Redis
from redis.exceptions import RedisError

from gateway.flow.turn import Turn
from gateway.store.document import TaskDocument
from gateway.telemetry.logs import log

if TYPE_CHECKING:
    from gateway.flow.deps import Deps

KEY_PREFIX = "ng:entropy:"
LIFETIME_S = 30 * 86_400
REFRESH_S = 1.0
MAX_WAITING = 1_000
"""Observations of one task and model that wait for Redis; the oldest are forgotten."""

UPDATE = """
-- KEYS[1]: the task's hash. ARGV: model, weight, lifetime in seconds, calibrated mean or '', then the new s.
-- A plain mean at first, then an exponential one; the calibration counts as one turn.
local mean_field, turns_field = 'mean:' .. ARGV[1], 'turns:' .. ARGV[1]
local mean = tonumber(redis.call('HGET', KEYS[1], mean_field) or ARGV[4])
local turns = tonumber(redis.call('HGET', KEYS[1], turns_field) or '0')
local head_start = ARGV[4] ~= '' and 1 or 0
for i = 5, #ARGV do
  turns = turns + 1
  local weight = math.max(tonumber(ARGV[2]), 1 / (turns + head_start))
  mean = mean and mean + weight * (tonumber(ARGV[i]) - mean) or tonumber(ARGV[i])
end
redis.call('HSET', KEYS[1], mean_field, tostring(mean), turns_field, turns)
redis.call('EXPIRE', KEYS[1], ARGV[3])
"""

logger = logging.getLogger(__name__)


async def bucket(turn: Turn, deps: Deps) -> Turn:
    """Fix the expected s and the bucket, which the worker writes into the trace as well."""
    task = turn.task or TaskDocument(task_type="default")
    expected_s = deps.entropies.expected_s(task, turn.model)
    number = bucket_of(expected_s, task.buckets.edges)
    controls = turn.controls.model_copy(update={"bucket": number})
    return turn.grown(expected_s=expected_s, bucket=number, controls=controls)


def bucket_of(expected_s: float | None, edges: tuple[float, ...]) -> int:
    """Return the index of the range that holds ``expected_s``; the middle one where nothing is expected."""
    return (len(edges) + 1) // 2 if expected_s is None else bisect_right(edges, expected_s)


class TaskEntropies:
    """The running mean of s by task and model: a copy of what is in Redis, refreshed in the background."""

    def __init__(self, redis: Redis, weight: float) -> None:
        self._redis = redis
        self._weight = weight
        self._update = redis.register_script(UPDATE)
        self._means: dict[tuple[str, str], float] = {}
        self._waiting: dict[tuple[str, str], deque[float]] = defaultdict(lambda: deque(maxlen=MAX_WAITING))
        self._calibrated: dict[str, float | None] = {}

    def expected_s(self, task: TaskDocument, model: str) -> float | None:
        """Return the running mean; before there is one, the calibration's; None without either."""
        mean = self._means.get((task.task_type, model))
        if mean is not None:
            return mean
        return task.calibration.s_mean if task.calibration is not None else None

    def observe(self, task: TaskDocument, model: str, s: float) -> None:
        """A turn ended with this mean s. Written with the next refresh."""
        self._calibrated[task.task_type] = task.calibration.s_mean if task.calibration else None
        self._waiting[task.task_type, model].append(s)

    async def watch(self, tasks: Callable[[], Collection[str]]) -> None:
        """Write what was observed and read the means, at the interval, until cancelled."""
        while True:
            try:
                await self.refresh(tasks())
            except (RedisError, OSError) as error:
                log(logger, logging.DEBUG, "entropies_not_refreshed", reason=str(error))
            await asyncio.sleep(REFRESH_S)

    async def refresh(self, tasks: Collection[str]) -> None:
        """Raises RedisError or OSError where Redis is away; what was observed then waits on."""
        for (task, model), observed in list(self._waiting.items()):
            await self._write(task, model, observed)
        for task in tasks:
            fields = cast(Mapping[bytes, bytes], await self._redis.hgetall(KEY_PREFIX + task))
            for field, value in fields.items():
                kind, _, model = field.decode().partition(":")
                if kind == "mean":
                    self._means[task, model] = float(value)

    async def _write(self, task: str, model: str, observed: deque[float]) -> None:
        values = list(observed)
        if not values:
            return
        calibrated = self._calibrated.get(task)
        prior = "" if calibrated is None else repr(calibrated)
        await self._update(
            keys=[KEY_PREFIX + task], args=[model, self._weight, LIFETIME_S, prior, *map(repr, values)]
        )
        for _ in values:
            observed.popleft()
