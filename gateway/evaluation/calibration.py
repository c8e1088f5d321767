"""Is a keep-probability of .7 relevant seven times in ten? Predicted against observed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gateway.evaluation.measures import Mask

NUM_BINS = 10


@dataclass(frozen=True, slots=True)
class Bin:
    """The chunks whose probability lies in [low, high); the last bin has its end too."""

    low: float
    high: float
    num_chunks: int
    predicted: float | None
    """Mean probability; None in an empty bin."""
    observed: float | None
    """Share that is relevant."""


@dataclass(frozen=True, slots=True)
class Calibration:
    bins: tuple[Bin, ...]
    expected_error: float
    """Mean of |predicted - observed| over bins, weighed by their chunks (Naeini et al. 2015, ECE)."""
    brier: float
    """Mean of (probability - relevance) squared (Brier 1950)."""


def calibrate(probability: NDArray[np.float64], is_relevant: Mask) -> Calibration:
    """Compare both, [n] each; at least one chunk."""
    place = np.minimum((probability * NUM_BINS).astype(int), NUM_BINS - 1)
    members = [place == index for index in range(NUM_BINS)]
    bins = [_bin(index, probability[own], is_relevant[own]) for index, own in enumerate(members)]
    return Calibration(tuple(bins), _expected_error(bins), float(np.mean((probability - is_relevant) ** 2)))


def _bin(index: int, probability: NDArray[np.float64], is_relevant: Mask) -> Bin:
    predicted = float(probability.mean()) if len(probability) else None
    observed = float(is_relevant.mean()) if len(probability) else None
    return Bin(index / NUM_BINS, (index + 1) / NUM_BINS, len(probability), predicted, observed)


def _expected_error(bins: Sequence[Bin]) -> float:
    gaps = [
        each.num_chunks * abs(each.predicted - each.observed)
        for each in bins
        if each.predicted is not None and each.observed is not None
    ]
    return sum(gaps) / sum(each.num_chunks for each in bins)
