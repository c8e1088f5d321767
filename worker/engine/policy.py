"""Who comes first: which waiting request is let in, whose prompt is read, who makes room.

A policy only orders. Where there is room for everyone it changes no token of anybody's text.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from worker.engine.active import ActiveRequest

PolicyName: TypeAlias = Literal["fcfs", "shortest", "entropic"]

AGEING_PER_S = 0.02
"""What a second of waiting is worth, in the same unit as a share."""
LENGTH_HISTORY = 0.9


class LengthHistory:
    """How long completions of a bucket become, as far as they have been seen: a running mean of tokens."""

    def __init__(self) -> None:
        self._means: dict[int, float] = {}

    def observe(self, active: ActiveRequest) -> None:
        bucket, length = _bucket(active), active.num_emitted
        mean = self._means.get(bucket, float(length))
        self._means[bucket] = LENGTH_HISTORY * mean + (1.0 - LENGTH_HISTORY) * length

    def remaining(self, active: ActiveRequest) -> float:
        """Return the tokens that are still expected, at least one, at most what was asked for."""
        limit = active.request.sampling.max_tokens
        mean = min(self._means.get(_bucket(active), float(limit)), float(limit))
        return max(1.0, mean - active.num_emitted)


class Policy(ABC):
    """``urgency`` orders; the rest follows from it. Ties go by arrival."""

    name: PolicyName

    @abstractmethod
    def urgency(self, active: ActiveRequest, now_s: float) -> float:
        """Return a number that is larger for whoever comes first. A longer wait never lowers it."""

    def observe(self, active: ActiveRequest) -> None:  # noqa: B027 - most learn nothing
        """A request has ended of itself."""

    def ordered(self, requests: Iterable[ActiveRequest], now_s: float) -> list[ActiveRequest]:
        """Return the most urgent first."""
        return sorted(requests, key=lambda active: (-self.urgency(active, now_s), active.number))

    def victim(self, running: Iterable[ActiveRequest], now_s: float) -> ActiveRequest:
        """Return who makes room: the least urgent, of equals the one that came last."""
        return self.ordered(running, now_s)[-1]


class FirstCome(Policy):
    """First come, first served."""

    name = "fcfs"

    def urgency(self, active: ActiveRequest, now_s: float) -> float:
        return -float(active.number)


@dataclass(slots=True)
class Shortest(Policy):
    """The least work left first, prompt tokens and expected completion together; waiting counts as work done.

    Shortest remaining time is the best for the mean wait and lets long requests starve; the ageing bounds
    that: after 1 / AGEING_PER_S seconds a full context has become as urgent as one without work.
    """

    max_context: int
    lengths: LengthHistory = field(default_factory=LengthHistory)
    name: PolicyName = field(default="shortest", init=False)

    def urgency(self, active: ActiveRequest, now_s: float) -> float:
        work = active.num_tokens - active.num_cached + self.lengths.remaining(active)
        return AGEING_PER_S * (now_s - active.arrived_s) - work / self.max_context

    def observe(self, active: ActiveRequest) -> None:
        self.lengths.observe(active)


@dataclass(frozen=True, slots=True)
class EntropicWeights:
    """The weights of pi; ``floor`` keeps a sequence that resolves nothing any more from standing still."""

    step_cost: float = 1.0
    memory: float = 1.0
    service: float = 1.0
    ageing_per_s: float = AGEING_PER_S
    floor: float = 0.05


@dataclass(slots=True)
class Entropic(Policy):
    """pi = (mean fall of H + ageing * wait + floor) / (alpha * C + beta * M + gamma * L).

    C is the cost of a step and M the memory held, both as shares of a full context, L the expected remaining
    service; the fall is a share of ln V. Each lies in [0, 1].
    """

    max_context: int
    vocab_size: int
    weights: EntropicWeights = EntropicWeights()
    lengths: LengthHistory = field(default_factory=LengthHistory)
    name: PolicyName = field(default="entropic", init=False)

    def urgency(self, active: ActiveRequest, now_s: float) -> float:
        weights = self.weights
        fall = min(1.0, active.mean_fall_nats / math.log(self.vocab_size))
        wait = weights.ageing_per_s * max(0.0, now_s - active.arrived_s)
        length = active.num_tokens / self.max_context
        held = active.num_cached / self.max_context
        left = min(1.0, self.lengths.remaining(active) / self.max_context)
        cost = weights.step_cost * length + weights.memory * held + weights.service * left
        return (fall + wait + weights.floor) / max(cost, 1e-6)

    def observe(self, active: ActiveRequest) -> None:
        self.lengths.observe(active)


def make_policy(name: PolicyName, max_context: int, vocab_size: int) -> Policy:
    """Return the policy of this name."""
    match name:
        case "fcfs":
            return FirstCome()
        case "shortest":
            return Shortest(max_context)
        case "entropic":
            return Entropic(max_context, vocab_size)


def _bucket(active: ActiveRequest) -> int:
    bucket = active.request.controls.bucket
    return -1 if bucket is None else bucket
