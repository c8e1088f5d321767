"""Replays a turn: every choice decoded again and compared with its trace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import httpx

from gateway.errors import ReplayError
from gateway.replay.comparison import (
    TOLERANCES,
    Comparison,
    Tolerance,
    compare,
    is_batch_independent,
    number_format,
    wider_tolerance,
)
from gateway.replay.environment import environment_changes
from gateway.replay.recorded import RecordedTurn
from gateway.replay.worker import ReplayAnswer, replay_choice
from gateway.trace.steps import ChoiceSteps


@dataclass(frozen=True, slots=True)
class ChoiceReplay:
    """One choice, compared."""

    choice: int
    comparison: Comparison
    text: str
    """What was decoded this time."""
    batch_size: int
    """The largest batch that it was decoded in, when it was recorded."""


@dataclass(frozen=True, slots=True)
class TurnReplay:
    """A whole turn, compared. ``dtype`` is the worker's that decoded it again."""

    turn_id: str
    is_exact: bool
    model: str
    dtype: str
    tolerance: Tolerance
    choices: tuple[ChoiceReplay, ...]
    environment_changes: tuple[str, ...] = ()
    """What the worker differs in from the one that decoded it first, as far as the record says."""

    @property
    def is_equal(self) -> bool:
        return all(choice.comparison.is_equal for choice in self.choices)


async def replay_turn(
    client: httpx.AsyncClient, turn: RecordedTurn, traces: Sequence[ChoiceSteps], *, is_exact: bool
) -> TurnReplay:
    """Feed the recorded tokens and compare H, G, k and logprob; or draw them again, alone in the batch.

    Raises ReplayError where the worker cannot do it.
    """
    replayed = []
    for trace in traces:
        tokens = None if is_exact else [step.token_id for step in trace.steps]
        answer = await replay_choice(client, turn, trace.choice, tokens)
        replayed.append((trace, answer))
    if not replayed:
        raise ReplayError(f"turn {turn.id!r} has no recorded steps")
    first = replayed[0][1]
    recorded = turn.environment.get("worker") or {}
    tolerance = wider_tolerance(
        number_format(recorded, first.dtype), number_format(first.environment, first.dtype)
    )
    changes = environment_changes(recorded, first.environment) if recorded else ()
    if recorded and not changes and is_batch_independent(recorded):
        tolerance = TOLERANCES["fp32"]
    choices = tuple(
        ChoiceReplay(
            trace.choice,
            compare(trace.steps, _columns(answer, trace), tolerance, with_tokens=is_exact),
            answer.text,
            max((step.batch_size for step in trace.steps), default=1),
        )
        for trace, answer in replayed
    )
    return TurnReplay(turn.id, is_exact, turn.model, first.dtype, tolerance, choices, changes)


def _columns(answer: ReplayAnswer, trace: ChoiceSteps) -> dict[str, list[float]]:
    """Raise ReplayError where columns lack or differ in length."""
    wanted = ("token_id", "entropy_nats", "gravity", "k", "logprob")
    columns = {name: answer.steps.get(name, []) for name in wanted}
    if {len(column) for column in columns.values()} != {len(answer.tokens)}:
        raise ReplayError("the worker's answer to /replay lacks steps")
    if trace.finish_reason == "cancelled":  # drawn again it goes on to its own end
        return {name: column[: len(trace.steps)] for name, column in columns.items()}
    return columns
