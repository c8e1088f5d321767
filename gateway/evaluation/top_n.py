"""Top-n by similarity at every n: what it needs for a given recall, and its recall at given tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from gateway.evaluation.measures import UNDEFINED, Labels

Ranking: TypeAlias = NDArray[np.int64]
"""[n] the indices of a request's chunks, the most similar first."""

_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class TopNCurves:
    """Recall and share of tokens of each of r requests at n = 0, 1, … chunks, up to the most that any has."""

    recall: NDArray[np.float64]
    """[r, n + 1]; rows of NaN where a request has no relevant chunk."""
    tokens: NDArray[np.float64]
    """[r, n + 1]"""


@dataclass(frozen=True, slots=True)
class TopN:
    """Top-n at a real n: between two whole ones, both are mixed linearly."""

    n: float
    recall: NDArray[np.float64]
    """[r]"""
    tokens: NDArray[np.float64]
    """[r]"""


def trace_top_n(requests: Sequence[tuple[Labels, Ranking]]) -> TopNCurves:
    """Follow every request's ``Ranking``, its indices from the most similar on."""
    longest = max(len(ranking) for _, ranking in requests)
    recalls, tokens = [], []
    for labels, ranking in requests:
        found = np.cumsum(labels.is_relevant[ranking])
        recall = found / found[-1] if found[-1] else np.full(len(ranking), UNDEFINED)
        recalls.append(_extended(recall, longest))
        spent = np.cumsum(labels.tokens[ranking])
        tokens.append(_extended(spent / spent[-1], longest))
    return TopNCurves(np.stack(recalls), np.stack(tokens))


def smallest_for_recall(curves: TopNCurves, recall: float) -> TopN:
    """Return the smallest n whose mean recall reaches ``recall``, as only one who has the labels can."""
    means = np.nanmean(curves.recall, axis=0)
    n = int(np.argmax(means >= recall - _ROUNDING))
    return TopN(n, curves.recall[:, n], curves.tokens[:, n])


def at_equal_tokens(curves: TopNCurves, tokens: float) -> TopN:
    """Return top-n at the n, mixed of two neighbours, whose mean share of tokens is ``tokens``."""
    means = curves.tokens.mean(axis=0)
    above = min(max(int(np.searchsorted(means, tokens - _ROUNDING)), 1), len(means) - 1)
    below = above - 1
    weight = min(float((tokens - means[below]) / (means[above] - means[below])), 1.0)
    recall, spent = (
        (1.0 - weight) * rows[:, below] + weight * rows[:, above] for rows in (curves.recall, curves.tokens)
    )
    return TopN(below + weight, recall, spent)


def _extended(values: NDArray[np.float64], length: int) -> NDArray[np.float64]:
    """Begin at n = 0 with nothing; past the last chunk nothing changes."""
    start = values[:1] * 0.0
    return np.concatenate([start, values, np.repeat(values[-1:], length - len(values))])
