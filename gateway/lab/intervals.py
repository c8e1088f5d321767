"""Bootstrap intervals over requests (percentile method, Efron 1979), seeded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import WithJsonSchema

JsonNumber: TypeAlias = Annotated[float, WithJsonSchema({"type": ["number", "null"]})]
"""null in JSON where it is infinite or unknown."""

_ROUNDS = 10_000
_LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with the range that holds it with 95 % confidence."""

    mean: JsonNumber
    low: JsonNumber
    high: JsonNumber

    @property
    def excludes_zero(self) -> bool:
        return self.low > 0.0 or self.high < 0.0


def mean_interval(values: Sequence[float], seed: int = 0) -> Interval:
    """Return the mean of ``values``, one a request, at least one."""
    sample = np.asarray(values, float)
    return _interval(float(sample.mean()), _resampled(sample, seed))


def paired_difference(ours: Sequence[float], theirs: Sequence[float], seed: int = 0) -> Interval:
    """Return the mean of ours - theirs, where both have one value for each of the same requests."""
    if len(ours) != len(theirs):
        raise ValueError("paired samples must be of one length")
    return mean_interval(np.asarray(ours, float) - np.asarray(theirs, float), seed)


def ratio_interval(ours: Sequence[float], theirs: Sequence[float], seed: int = 0) -> Interval:
    """Return sum(ours) / sum(theirs), requests drawn in pairs; ``theirs`` must be positive."""
    pairs = np.stack([np.asarray(ours, float), np.asarray(theirs, float)])
    draws = np.random.default_rng(seed).integers(0, pairs.shape[1], (_ROUNDS, pairs.shape[1]))
    top, bottom = (np.array([row[draw].sum() for draw in draws]) for row in pairs)
    return _interval(float(pairs[0].sum() / pairs[1].sum()), top / bottom)


def _resampled(sample: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    draws = np.random.default_rng(seed).integers(0, len(sample), (_ROUNDS, len(sample)))
    means: NDArray[np.float64] = sample[draws].mean(axis=1)
    return means


def _interval(estimate: float, draws: NDArray[np.float64]) -> Interval:
    tail = (1.0 - _LEVEL) / 2.0
    low, high = np.quantile(draws, [tail, 1.0 - tail])
    return Interval(estimate, float(low), float(high))
