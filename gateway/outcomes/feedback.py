"""What clients report of turns: kept beside the turn, and in its experiment's data where it is in one.

Feedback may come long after the turn, as long as the turn is remembered, and more than once: the last counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import orjson
from redis.asyncio import Redis

from gateway.outcomes.entry import Feedback, encode_entry, feedback_key, outcomes_key
from gateway.outcomes.ledger import Bounds, Experiment
from gateway.trace.keys import turn_key

MAX_NAMES = 64
"""Names under which one turn is reported on."""
PAUSES_S = (0.05, 0.2, 0.5)
"""A turn that has just ended is written within this time."""
LARGE_BYTES = 256 * 1024
"""Parsing a larger record would hold up the event loop."""

KEEP = """
-- KEYS[1]: the turn's hash. ARGV: name, value, lifetime in seconds, largest number of names.
-- Returns whether there was room, and the value that was there before.
local before = redis.call('HGET', KEYS[1], ARGV[1])
if not before and redis.call('HLEN', KEYS[1]) >= tonumber(ARGV[4]) then
  return {0, false}
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('EXPIRE', KEYS[1], ARGV[3])
return {1, before}
"""


@dataclass(frozen=True, slots=True)
class KnownTurn:
    """A turn that feedback may be about; ``experiment`` is None where it is in none's data."""

    id: str
    experiment: Experiment | None


@dataclass(frozen=True, slots=True)
class Kept:
    """``before`` is what this name had been reported with, None for the first time."""

    before: float | None


class FeedbackBook:
    """Writes feedback at once, so that the client is told whether it is kept.

    All methods raise RedisError or OSError where Redis does not answer.
    """

    def __init__(self, redis: Redis, bounds: Bounds, ttl_s: int) -> None:
        """``bounds`` are those of an experiment's stream; ``ttl_s`` is how long a turn's own hash is kept."""
        self._redis = redis
        self._bounds = bounds
        self._ttl_s = ttl_s
        self._keep = redis.register_script(KEEP)

    async def find(self, turn_ids: Collection[str]) -> Mapping[str, KnownTurn]:
        """Return those turns that are remembered. What is not there yet is waited for, shortly."""
        found: dict[str, KnownTurn] = {}
        await self._look_for(turn_ids, found)
        for pause_s in PAUSES_S:
            missing = [turn_id for turn_id in turn_ids if turn_id not in found]
            if not missing:
                break
            await asyncio.sleep(pause_s)
            await self._look_for(missing, found)
        return found

    async def keep(self, turn: KnownTurn, feedback: Feedback) -> Kept | None:
        """Write one report. Returns None where the turn has as many names as it may have."""
        kept = await self._keep(
            keys=[feedback_key(turn.id)], args=[feedback.name, repr(feedback.value), self._ttl_s, MAX_NAMES]
        )
        has_room, before = cast(Sequence[Any], kept)
        if not has_room:
            return None
        if turn.experiment is not None:
            await self._note(turn.experiment, feedback)
        return Kept(None if before is None else float(before))

    async def _note(self, experiment: Experiment, feedback: Feedback) -> None:
        key = outcomes_key(*experiment)
        async with self._redis.pipeline(transaction=True) as pipe:
            fields = cast(Any, encode_entry(feedback))
            pipe.xadd(key, fields, maxlen=self._bounds.max_entries, approximate=True)
            pipe.expire(key, self._bounds.ttl_s)
            await pipe.execute()

    async def _look_for(self, turn_ids: Collection[str], found: dict[str, KnownTurn]) -> None:
        for turn_id in turn_ids:  # one after the other: a record may have megabytes
            record = cast(bytes | None, await self._redis.get(turn_key(turn_id)))
            if record is not None:
                is_large = len(record) > LARGE_BYTES
                turn = await asyncio.to_thread(orjson.loads, record) if is_large else orjson.loads(record)
                found[turn_id] = KnownTurn(turn_id, _experiment_of(turn.get("assignment") or {}))


def _experiment_of(assignment: Mapping[str, Any]) -> Experiment | None:
    """Return whose data the turn is in: an experiment's that drew its lane, or is yet to enrol its unit."""
    version = assignment.get("experiment_version", 0)
    is_before = assignment.get("reason") == "not_enrolled" and assignment.get("is_sticky")
    if not version or not (is_before or assignment.get("reason") in ("split", "shadow")):
        return None
    return Experiment(assignment["experiment"], version)
