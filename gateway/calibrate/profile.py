"""What a task's steps look like, and the settings that follow from it. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

PERCENTILES = (5, 25, 50, 75, 95, 99)
LOW, HIGH = 5, 95
ROOM = 4.0
"""Candidates for each effective one: 4 exp(H) tokens hold 96 % of the probability or more where H is high."""
MIN_RANGE = 0.01
"""Of s: below it nothing is left to follow."""
MAX_K = 1_000
MIN_TURNS_FOR_EDGES = 8


@dataclass(frozen=True, slots=True)
class MeasuredTurn:
    """The steps of one prompt: H in nats, and s."""

    entropies_nats: tuple[float, ...]
    normalised: tuple[float, ...]

    @property
    def mean_s(self) -> float:
        return sum(self.normalised) / len(self.normalised)


@dataclass(frozen=True, slots=True)
class Distribution:
    """Values at PERCENTILES, their mean, and how many there are."""

    num_values: int
    mean: float
    percentiles: tuple[float, ...]

    def at(self, percentile: int) -> float:
        return self.percentiles[PERCENTILES.index(percentile)]


@dataclass(frozen=True, slots=True)
class Proposal:
    """Settings for a task. ``edges`` is empty where there are too few turns to tell."""

    s_low: float
    s_high: float
    k_min: int
    k_max: int
    s_mean: float
    edges: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Profile:
    """A task measured."""

    s: Distribution
    entropy_nats: Distribution
    turn_s: Distribution
    """Of the turns' means."""
    proposal: Proposal


def profile(turns: Sequence[MeasuredTurn]) -> Profile:
    """Return the distributions over all steps of at least one turn, and what follows from them.

    s_low and s_high are the 5th and 95th percentile of s. k_min and k_max are 4 exp(H) at the same two, so
    that with the geometric curve k is 4 exp(H) at every step between them: ln k and H are both linear in s.
    """
    s = distribution([value for turn in turns for value in turn.normalised])
    entropy = distribution([value for turn in turns for value in turn.entropies_nats])
    turn_s = distribution([turn.mean_s for turn in turns])
    s_low = math.floor(s.at(LOW) * 1e3) / 1e3
    s_high = min(1.0, max(math.ceil(s.at(HIGH) * 1e3) / 1e3, s_low + MIN_RANGE))
    k_min, k_max = (_k(entropy.at(percentile)) for percentile in (LOW, HIGH))
    edges = _edges([turn.mean_s for turn in turns])
    proposal = Proposal(
        round(s_low, 3), round(s_high, 3), k_min, max(k_max, k_min), round(turn_s.mean, 3), edges
    )
    return Profile(s, entropy, turn_s, proposal)


def distribution(values: Sequence[float]) -> Distribution:
    """Return mean and percentiles, linear between neighbours, of at least one value."""
    array = np.asarray(values, float)
    found = tuple(float(value) for value in np.percentile(array, PERCENTILES))
    return Distribution(len(array), float(array.mean()), found)


def _k(entropy_nats: float) -> int:
    return min(MAX_K, max(1, round(ROOM * math.exp(entropy_nats))))


def _edges(means: Sequence[float]) -> tuple[float, ...]:
    """Return the quartiles of the turns' mean s, so that as many turns fall into each of four buckets."""
    if len(means) < MIN_TURNS_FOR_EDGES:
        return ()
    quartiles = [round(float(value), 3) for value in np.percentile(means, (25, 50, 75))]
    return tuple(sorted({value for value in quartiles if 0.0 < value < 1.0}))
