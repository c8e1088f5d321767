"""Bounds of the entropy from the head of a distribution, which is all that a foreign server shows.

The worker has the same formula for its own use (``worker/thermo/bounds.py``); neither may import the other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

UNKNOWN = 0.0
"""For ``largest_hidden``: the logarithm of 1, which no token is above."""


class EntropyBounds(NamedTuple):
    """The entropy of the whole distribution lies between the two, in nats."""

    lower_nats: float
    upper_nats: float


def bound_entropy(shown: Sequence[float], largest_hidden: float, vocabulary_size: int) -> EntropyBounds:
    """Bound H from the log-probabilities of some tokens; no other token's is above ``largest_hidden``.

    With R the mass of the n hidden tokens: R is spread over at least R / p_max of them and at most n, hence
    H_shown + R max(-ln p_max, -ln R) <= H <= H_shown + R ln n - R ln R. A vocabulary that is taken for larger
    than it is widens the upper bound alone; one that is smaller than what is shown hides nothing.
    """
    mass = head = 0.0
    for value in shown:
        probability = math.exp(value)
        mass += probability
        head -= probability * value
    rest = 1.0 - mass
    num_hidden = vocabulary_size - len(shown)
    if rest <= 0.0 or num_hidden <= 0:
        return EntropyBounds(head, head)
    surprise = -math.log(rest)
    lower = head + rest * max(-largest_hidden, surprise)
    upper = head + rest * (math.log(num_hidden) + surprise)
    return EntropyBounds(min(lower, upper), upper)
