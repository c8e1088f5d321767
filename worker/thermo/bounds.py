"""Bounds of the entropy from the head of a distribution, which is all that a foreign server shows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EntropyBounds:
    """What the k most probable tokens say about the entropy of the whole distribution, in nats."""

    lower_nats: float
    upper_nats: float

    @property
    def middle_nats(self) -> float:
        return (self.lower_nats + self.upper_nats) / 2

    @property
    def half_width_nats(self) -> float:
        return (self.upper_nats - self.lower_nats) / 2


def bound_entropy(top_logprobs: Sequence[float], vocabulary_size: int) -> EntropyBounds:
    """Bound the entropy from the log-probabilities of the most probable tokens, in any order.

    With R the mass of the n = V - k tokens that are not shown, none of which is above p_k: R is spread over
    at least R / p_k tokens and at most n, hence H_k + R max(-ln p_k, -ln R) <= H <= H_k + R ln n - R ln R.
    Raises ValueError for an empty list or one longer than the vocabulary.
    """
    if not 0 < len(top_logprobs) <= vocabulary_size:
        raise ValueError(f"{len(top_logprobs)} log-probabilities for a vocabulary of {vocabulary_size}")
    shown = [value for value in top_logprobs if value > -math.inf]
    head = -sum(math.exp(value) * value for value in shown)
    rest = max(0.0, 1.0 - sum(math.exp(value) for value in shown))
    num_hidden = vocabulary_size - len(top_logprobs)
    if rest == 0.0 or num_hidden == 0 or len(shown) < len(top_logprobs):
        return EntropyBounds(head, head)
    surprise = -math.log(rest)
    lower = head + rest * max(-min(shown), surprise)
    upper = head + rest * (math.log(num_hidden) + surprise)
    return EntropyBounds(min(lower, upper), upper)
