"""Which chunks stay: what each has to reach, and the budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

_LARGEST = 10.0
MOST_NEEDED = 0.5
"""What is likelier relevant than not stays, however long it is."""


def needed_probability(
    probability: NDArray[np.float64], sizes: NDArray[np.float64], price: float
) -> NDArray[np.float64]:
    """Return [n] the keep-probability from which on each chunk is worth its ``sizes``, at ``price``.

    Of what is expected to be relevant, sum(p) and at least 1, chunk i is the share p_i / sum(p). It stays
    where that share is at least price * sqrt(n) times its share of the size: so recall is bought where it
    costs the fewest tokens. The square root was chosen out of fold: without it many chunks keep too many.
    A size counts up to ten times the median: beside one of 50,000 characters the others would cost nothing.
    """
    sizes = np.minimum(sizes, _LARGEST * np.median(sizes))
    expected = max(float(probability.sum()), 1.0)
    shares = sizes / max(float(sizes.sum()), 1.0)
    needed: NDArray[np.float64] = np.minimum(price * expected * np.sqrt(len(sizes)) * shares, MOST_NEEDED)
    return needed


def meet(probability: NDArray[np.float64], needed: NDArray[np.float64] | float) -> NDArray[np.bool_]:
    """Return [n] which reach what is ``needed``; where none does, the best one alone (langchain#7168)."""
    keeps: NDArray[np.bool_] = probability >= needed
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
