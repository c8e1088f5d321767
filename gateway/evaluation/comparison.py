"""From requests to figures: means with intervals a set and overall, and ours against every incumbent."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from gateway.evaluation.measures import NAMES
from gateway.evaluation.subject import OURS, Subject
from gateway.evaluation.top_n import TopNCurves, at_equal_tokens, smallest_for_recall, trace_top_n
from gateway.lab.intervals import Interval, mean_interval, paired_difference

Cell: TypeAlias = Mapping[str, Interval | None]
"""The mean of each measure; None where no request has it."""

_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class ForOurRecall:
    """The smallest n, chosen with the labels, whose mean recall reaches ours."""

    n: int
    recall: float
    tokens: float
    tokens_saved: Interval
    """Theirs - ours, paired."""


@dataclass(frozen=True, slots=True)
class AtEqualTokens:
    """Top-n at the n, mixed linearly of two neighbours, that spends our tokens."""

    n: float
    tokens: float
    recall: float
    difference: Interval
    """Ours - theirs in recall, paired, n held fixed."""

    @property
    def is_below(self) -> bool:
        """Whether ours finds less than top-n for the same tokens."""
        return self.difference.mean < -_ROUNDING


@dataclass(frozen=True, slots=True)
class Comparison:
    """One of our settings against the rest, on the requests that have relevant chunks."""

    recall_difference: Mapping[str, Interval]
    """Ours - theirs by incumbent, paired."""
    for_our_recall: ForOurRecall
    at_equal_tokens: AtEqualTokens


@dataclass(frozen=True, slots=True)
class Group:
    """A set of requests, or all of them."""

    num_requests: int
    cells: Mapping[str, Cell]
    """By method, then by measure."""
    comparisons: Mapping[str, Comparison]
    """By our setting; empty where nothing in the group is relevant."""
    curves: TopNCurves | None


def summarize(subjects: Sequence[Subject], seed: int) -> Group:
    """Average over ``subjects``, at least one."""
    methods = tuple(subjects[0].measures)
    cells = {method: _cell(subjects, method, seed) for method in methods}
    asked = [subject for subject in subjects if subject.labels.is_relevant.any()]
    if not asked:
        return Group(len(subjects), cells, {}, None)
    curves = trace_top_n([(subject.labels, subject.ranking) for subject in asked])
    comparisons = {ours: _compare(asked, ours, curves, seed) for ours in OURS}
    return Group(len(subjects), cells, comparisons, curves)


def values(subjects: Sequence[Subject], method: str, measure: str) -> NDArray[np.float64]:
    """Return [r] what ``method`` reached at each request; NaN where it is undefined."""
    return np.array([getattr(subject.measures[method], measure) for subject in subjects])


def _cell(subjects: Sequence[Subject], method: str, seed: int) -> Cell:
    cell: dict[str, Interval | None] = {}
    for measure in NAMES:
        found = values(subjects, method, measure)
        found = found[~np.isnan(found)]
        cell[measure] = mean_interval(found.tolist(), seed) if len(found) else None
    return cell


def _compare(subjects: Sequence[Subject], ours: str, curves: TopNCurves, seed: int) -> Comparison:
    recall, tokens = values(subjects, ours, "recall"), values(subjects, ours, "tokens")
    others = [method for method in subjects[0].measures if method not in OURS]
    reaching = smallest_for_recall(curves, float(recall.mean()))
    spending = at_equal_tokens(curves, float(tokens.mean()))
    return Comparison(
        recall_difference={
            other: paired_difference(recall.tolist(), values(subjects, other, "recall").tolist(), seed)
            for other in others
        },
        for_our_recall=ForOurRecall(
            n=math.ceil(reaching.n),
            recall=float(reaching.recall.mean()),
            tokens=float(reaching.tokens.mean()),
            tokens_saved=paired_difference(reaching.tokens.tolist(), tokens.tolist(), seed),
        ),
        at_equal_tokens=AtEqualTokens(
            n=spending.n,
            tokens=float(spending.tokens.mean()),
            recall=float(spending.recall.mean()),
            difference=paired_difference(recall.tolist(), spending.recall.tolist(), seed),
        ),
    )
