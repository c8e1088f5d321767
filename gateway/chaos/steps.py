"""What became of a run's trace steps: those that Redis does not have must have been counted as lost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from redis.asyncio import Redis

from gateway.chaos.client import LONGEST_TOKENS
from gateway.chaos.endings import Ending
from gateway.chaos.site import Site
from worker.protocol import trace_key, unpack_steps

MEMORY_S = 5.0
"""A step is in Redis, in the spill file, or counted as lost so soon after it was made."""


@dataclass(frozen=True, slots=True)
class StepLoss:
    """Steps that Redis lacks. ``excused``: of turns whose steps a killed worker may have had in memory."""

    missing: int = 0
    excused: int = 0
    doubled: int = 0
    num_unknown: int = 0
    """Turns without an end in Redis and without a usage, or without an id, whose steps may have been lost:
    how many they had nobody knows."""

    def problems(self, counted: float) -> list[str]:
        """Compare with what the workers counted."""
        found = [f"{self.doubled} trace steps are there twice"] if self.doubled else []
        at_most = self.missing + self.excused + LONGEST_TOKENS * self.num_unknown
        if not self.missing <= counted <= at_most:
            found.append(f"{self.missing} trace steps are missing, the workers counted {counted:.0f} as lost")
        return found


async def step_loss(redis: Redis, endings: Iterable[Ending], site: Site) -> StepLoss:
    """Look up every turn that a worker may have worked for. Steps are lost only while Valkey is away."""
    missing = excused = doubled = num_unknown = 0
    for ending in endings:
        ended_s = ending.ended_s + MEMORY_S
        may_be_lost = site.valkey.was_away_between(ending.began_s, ended_s) and ending.end != "refused"
        if not ending.turn_id:  # cut off, or left before its headers
            num_unknown += may_be_lost
            continue
        positions, ends = await _found(redis, ending.turn_id)
        was_killed = any(worker.was_killed_between(ending.began_s, ended_s) for worker in site.workers)
        if not was_killed and len(ends) < 2:  # a worker that was given up may have noted steps, too
            doubled += len(positions) - len(set(positions))
        made = ending.num_tokens if ending.end == "answered" else max(ends, default=None)
        if made is None:
            num_unknown += bool(positions) or may_be_lost or (was_killed and ending.end != "refused")
        elif was_killed:
            excused += max(0, made - len(set(positions)))
        else:
            missing += max(0, made - len(set(positions)))
    return StepLoss(missing, excused, doubled, num_unknown)


async def _found(redis: Redis, turn_id: str) -> tuple[list[int], list[int]]:
    """Return the positions of the steps that are there, and how many each worker says there were."""
    positions: list[int] = []
    ends: list[int] = []
    entries: Any = await redis.xrange(trace_key(turn_id))
    for _, fields in entries:
        if b"end" in fields:
            ends.append(int(fields[b"n"]))
            continue
        _, first, records = unpack_steps(fields)
        positions += range(first, first + len(records))
    return positions, ends
