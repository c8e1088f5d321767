"""What another configuration's answer is compared with: the record, or the recorded request decoded again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from gateway.replay.comparison import is_batch_independent
from gateway.replay.environment import environment_changes
from gateway.replay.recorded import Decoding
from gateway.replay.side import Side, decoded_side, recorded_side
from gateway.replay.worker import ReplayAnswer, decode_choice
from gateway.trace.steps import ChoiceSteps
from worker.protocol import NO_TOKEN


@dataclass(frozen=True, slots=True)
class Base:
    """``how`` says in words which of the two it is, and why."""

    side: Side
    how: str
    is_recorded: bool


async def base_of(
    worker: httpx.AsyncClient, decoding: Decoding, trace: ChoiceSteps, why_again: str | None
) -> Base:
    """Return the recorded choice, or where ``why_again`` says so the request decoded again, alone."""
    if why_again is None:
        return Base(recorded_side(trace, ""), f"the record, {_alone(trace)}", True)
    again = await decode_choice(worker, decoding, trace.choice)
    return Base(decoded_side(again), f"decoded again alone: {why_again}", False)


def why_decode_again(trace: ChoiceSteps, recorded: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """Return why a recorded choice cannot be compared with one decoded alone by this worker; None if it can.

    ``recorded`` and ``now`` are the environments of the worker then and of this one. In bf16 and with
    int8 weights a step rounds differently in another batch, unless native kernels compute it; in fp32 the
    differences stay below what moves a token.
    """
    if any(step.token_id == NO_TOKEN for step in trace.steps):
        return "the trace has no token ids"
    if not recorded:
        return "the record does not say what it was decoded with"
    if differing := environment_changes(recorded, now):
        return f"this worker differs from the one that decoded it ({', '.join(differing)})"
    largest = max((step.batch_size for step in trace.steps), default=1)
    if largest > 1 and not is_batch_independent(recorded):
        return f"it was decoded in a batch of up to {largest}, where rounding differs"
    return None


def _alone(trace: ChoiceSteps) -> str:
    return (
        "decoded alone"
        if all(step.batch_size == 1 for step in trace.steps)
        else "which company does not change"
    )


async def with_texts(worker: httpx.AsyncClient, decoding: Decoding, base: Base, choice: int) -> Base:
    """Return a recorded base with its text and its tokens' texts, which a worker reads from the ids."""
    if not base.is_recorded or not base.side.tokens:
        return base
    answer: ReplayAnswer = await decode_choice(worker, decoding, choice, base.side.tokens)
    side = Side(
        base.side.tokens,
        answer.text,
        base.side.entropies_nats,
        base.side.gravities,
        base.side.ks,
        tuple(answer.pieces),
    )
    return Base(side, base.how, True)
