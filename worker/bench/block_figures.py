"""From what each arm did on each context to means, with what they may be worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

NUM_RESAMPLES = 2000

Columns: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class Run:
    """One arm on one context."""

    share: float
    """Mean over the continuation's steps of the share of blocks attended to."""
    nats_per_token: float
    step_ratio: float
    """CPU time of steps that attend to everything over the arm's, one in turn with the other."""
    needle_share: float
    num_chosen: int
    """Needles whose word had the largest logit of all candidates."""
    num_written: int
    """Needles whose word had the largest logit of the vocabulary."""
    num_needles: int


@dataclass(frozen=True, slots=True)
class Figures:
    """One arm over all contexts of a size; intervals are bootstrapped over contexts (95 %)."""

    share: float
    needle_share: float
    nats_per_token: float
    nats_more: float
    """Beside attending to everything."""
    nats_more_low: float
    nats_more_high: float
    step_ratio: float
    step_ratio_low: float
    step_ratio_high: float
    recall: float
    """Of the needles, by choice."""
    recall_low: float
    recall_high: float
    written: float
    num_needles: int


def figures(runs: Sequence[Run], dense: Sequence[Run]) -> Figures:
    """Sum up an arm's runs; ``dense`` are those of the same contexts that attend to everything."""
    columns = np.array(
        [
            (each.nats_per_token - whole.nats_per_token, each.step_ratio, each.num_chosen / each.num_needles)
            for each, whole in zip(runs, dense, strict=True)
        ]
    )
    low, high = _interval(columns)
    more, ratio, recall = columns.mean(0)
    num_needles = sum(each.num_needles for each in runs)
    return Figures(
        share=_mean([each.share for each in runs]),
        needle_share=_mean([each.needle_share for each in runs]),
        nats_per_token=_mean([each.nats_per_token for each in runs]),
        nats_more=round(float(more), 4),
        nats_more_low=low[0],
        nats_more_high=high[0],
        step_ratio=round(float(ratio), 4),
        step_ratio_low=low[1],
        step_ratio_high=high[1],
        recall=round(float(recall), 4),
        recall_low=low[2],
        recall_high=high[2],
        written=round(sum(each.num_written for each in runs) / num_needles, 4),
        num_needles=num_needles,
    )


def difference(one: Sequence[Run], other: Sequence[Run]) -> dict[str, tuple[float, float, float]]:
    """Return how much more one arm has than another of the same contexts: mean, low, high."""
    columns = np.array(
        [
            (a.nats_per_token - b.nats_per_token, (a.num_chosen - b.num_chosen) / a.num_needles)
            for a, b in zip(one, other, strict=True)
        ]
    )
    low, high = _interval(columns)
    means = [round(float(mean), 4) for mean in columns.mean(0)]
    return {
        name: (means[index], low[index], high[index])
        for index, name in enumerate(("nats_per_token", "recall"))
    }


def _interval(columns: Columns) -> tuple[list[float], list[float]]:
    chosen = np.random.default_rng(0).integers(0, len(columns), (NUM_RESAMPLES, len(columns)))
    low, high = np.percentile(columns[chosen].mean(1), [2.5, 97.5], axis=0).round(4)
    return low.tolist(), high.tolist()


def _mean(values: Sequence[float]) -> float:
    return round(float(np.mean(values)), 4)
