"""Which chunks stay: threshold and budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray


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
