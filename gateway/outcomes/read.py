"""Reads an experiment's stream back: exposures, and turns with what clients reported of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from gateway.lab.metrics import FEEDBACK_PREFIX
from gateway.lab.observations import Exposed, Observations, ObservedTurn
from gateway.outcomes.entry import Exposure, Feedback, TurnOutcome, decode_entry, outcomes_key

if TYPE_CHECKING:
    from redis.asyncio import Redis

_PAGE = 500
"""Entries that are decoded before the event loop gets its turn again: a few milliseconds."""


async def read_observations(redis: Redis, experiment_id: str, version: int) -> Observations:
    """Return all that is in the stream, page by page; nothing where there is no stream.

    Damaged entries are counted and left out. Of a turn that is there twice the later entry counts, of
    feedback the last under its name, however late it came. Raises RedisError.
    """
    gathered = _Gathered()
    key, start = outcomes_key(experiment_id, version), "-"
    while True:
        page = cast(list[Any], await redis.xrange(key, start, "+", count=_PAGE))
        for _, fields in page:
            gathered.add(fields)
        if len(page) < _PAGE:
            return await asyncio.to_thread(gathered.observations)
        start = "(" + page[-1][0].decode()


async def num_entries(redis: Redis, experiment_id: str, version: int) -> int:
    """Return how many entries the stream has. Raises RedisError."""
    return int(await redis.xlen(outcomes_key(experiment_id, version)))


class _Gathered:
    """What has been read so far."""

    def __init__(self) -> None:
        self._exposures: dict[str, Exposed] = {}
        self._moved: set[str] = set()
        self._turns: dict[str, ObservedTurn] = {}
        self._feedback: dict[tuple[str, str], float] = {}
        self._num_damaged = 0

    def add(self, fields: Mapping[bytes, bytes]) -> None:
        try:
            entry = decode_entry(fields)
        except ValueError:
            self._num_damaged += 1
            return
        match entry:
            case Exposure(unit, arm, at):
                known = self._exposures.setdefault(unit, Exposed(arm, at))
                if known.arm != arm:
                    self._moved.add(unit)
            case TurnOutcome(turn_id, unit, arm, at, values, shadow_of):
                self._turns[turn_id] = ObservedTurn(turn_id, unit, arm, at, values, shadow_of)
            case Feedback(turn_id, name, value, _):
                self._feedback[turn_id, name] = value

    def observations(self) -> Observations:
        unknown = sum(turn_id not in self._turns for turn_id, _ in self._feedback)
        for turn_id, values in self._reported():
            turn = self._turns[turn_id]
            self._turns[turn_id] = replace(turn, values={**turn.values, **values})
        turns = tuple(self._turns.values())
        return Observations(
            self._exposures, turns, frozenset(self._moved), self._num_damaged, num_unknown_feedback=unknown
        )

    def _reported(self) -> Iterator[tuple[str, dict[str, float]]]:
        by_turn: dict[str, dict[str, float]] = {}
        for (turn_id, name), value in self._feedback.items():
            if turn_id in self._turns:
                by_turn.setdefault(turn_id, {})[FEEDBACK_PREFIX + name] = value
        yield from by_turn.items()
