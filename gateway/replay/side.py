"""One answer of two that are compared: its tokens and what was measured at each."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from gateway.errors import ReplayError
from gateway.replay.worker import ReplayAnswer
from gateway.trace.steps import ChoiceSteps


@dataclass(frozen=True, slots=True)
class Side:
    """An answer. The columns have one value a token; ``pieces``, the tokens' texts, may lack."""

    tokens: tuple[int, ...]
    text: str
    entropies_nats: tuple[float, ...]
    gravities: tuple[float, ...]
    ks: tuple[float, ...]
    pieces: tuple[str, ...] = ()

    @property
    def means(self) -> Means:
        return Means(
            num_tokens=len(self.tokens),
            entropy_nats=_mean(self.entropies_nats),
            gravity=_mean(self.gravities),
            k=_mean(self.ks),
            entropic_time_nats=sum(max(0.0, a - b) for a, b in itertools.pairwise(self.entropies_nats)),
        )

    def token_at(self, step: int) -> str:
        """Return the text of a token, its id where the text is not known, and a word where there is none."""
        if step >= len(self.tokens):
            return "(ended)"
        return repr(self.pieces[step]) if step < len(self.pieces) else f"#{self.tokens[step]}"


@dataclass(frozen=True, slots=True)
class Means:
    """Over all steps of an answer; ``entropic_time_nats`` is tau, a sum."""

    num_tokens: int
    entropy_nats: float
    gravity: float
    k: float
    entropic_time_nats: float


def decoded_side(answer: ReplayAnswer) -> Side:
    """Return what a worker decoded. Raises ReplayError where its columns lack."""
    columns = [answer.steps.get(name, []) for name in ("entropy_nats", "gravity", "k")]
    if any(len(column) != len(answer.tokens) for column in columns):
        raise ReplayError("the worker's answer to /replay lacks steps")
    entropies, gravities, ks = map(tuple, columns)
    return Side(tuple(answer.tokens), answer.text, entropies, gravities, ks, tuple(answer.pieces))


def recorded_side(trace: ChoiceSteps, text: str) -> Side:
    """Return what a turn's trace holds."""
    return Side(
        tuple(step.token_id for step in trace.steps),
        text,
        tuple(step.entropy_nats for step in trace.steps),
        tuple(step.gravity for step in trace.steps),
        tuple(float(step.k) for step in trace.steps),
    )


def first_divergence(one: Side, other: Side) -> int | None:
    """Return the first step whose tokens differ, or at which one answer has ended; None where none is."""
    for step, (a, b) in enumerate(zip(one.tokens, other.tokens, strict=False)):
        if a != b:
            return step
    return None if len(one.tokens) == len(other.tokens) else min(len(one.tokens), len(other.tokens))


def _mean(values: Sequence[float]) -> float:
    return fmean(values) if values else 0.0
