"""Which chunks stay: probability, threshold, budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from gateway.context.signals import Signals
from gateway.context.weights import Weights


def keep_probability(signals: Signals, weights: Weights) -> NDArray[np.float64]:
    """Return [n] the probability that each chunk is wanted, calibrated on the data that ``weights`` names."""
    return _sigmoid(_score(signals, weights))


def probability_without_links(signals: Signals, weights: Weights) -> NDArray[np.float64]:
    """Return [n] what the probability would be if no chunk named or shared anything: what links decide."""
    return _sigmoid(_score(signals, weights) - weights.per_signal["bridge"] * signals.bridge)


def meet(probability: NDArray[np.float64], threshold: float) -> NDArray[np.bool_]:
    """Return [n] which are at or above ``threshold``; where none is, the best one alone (langchain#7168)."""
    keeps: NDArray[np.bool_] = probability >= threshold
    if not keeps.any():
        keeps[int(probability.argmax())] = True
    return keeps


def within_budget(
    wanted: Mapping[int, Sequence[int]], scores: Sequence[float], tokens: Sequence[int], budget: int
) -> set[int]:
    """Return what fits ``budget`` tokens, best score first, past each that does not fit.

    ``wanted`` maps each chunk to its near-copies; the first that fits stands in for one that does not.
    The budget is never exceeded (openrag#851): where even the smallest does not fit, nothing stays.
    """
    fitting: set[int] = set()
    left = budget
    for index in sorted(wanted, key=lambda index: (-scores[index], index)):
        chosen = next((each for each in (index, *wanted[index]) if tokens[each] <= left), None)
        if chosen is not None:
            fitting.add(chosen)
            left -= tokens[chosen]
    return fitting


def _score(signals: Signals, weights: Weights) -> NDArray[np.float64]:
    score = np.full(len(signals.dense), weights.intercept)
    for name, weight in weights.per_signal.items():
        score += weight * getattr(signals, name)
    return score


def _sigmoid(score: NDArray[np.float64]) -> NDArray[np.float64]:
    probability: NDArray[np.float64] = 1.0 / (1.0 + np.exp(-score))
    return probability
