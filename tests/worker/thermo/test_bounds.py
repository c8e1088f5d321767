"""Entropy from the head of a distribution, against the exact one."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from worker.thermo.bounds import bound_entropy

Rows = NDArray[np.float32]


def probabilities(row: Rows) -> NDArray[np.float64]:
    weights = np.exp(row.astype(np.float64) - row.max())
    p: NDArray[np.float64] = weights / weights.sum()
    return p


def entropy(p: NDArray[np.float64]) -> float:
    positive = p[p > 0]
    return float(-(positive * np.log(positive)).sum())


@pytest.mark.parametrize("shown", [1, 5, 20])
def test_bounds_from_the_head_hold_the_exact_entropy(recorded_logits: Rows, shown: int) -> None:
    middles, dropped = [], []
    for row in recorded_logits:
        p = np.sort(probabilities(row))[::-1]
        bounds = bound_entropy(np.log(p[:shown]).tolist(), len(p))
        assert bounds.lower_nats <= entropy(p) + 1e-9
        assert bounds.upper_nats >= entropy(p) - 1e-9
        assert bounds.half_width_nats == pytest.approx((bounds.upper_nats - bounds.lower_nats) / 2)
        middles.append(bounds.middle_nats - entropy(p))
        dropped.append(entropy(p[:shown]) - entropy(p))
    assert abs(np.mean(middles)) < abs(np.mean(dropped))


def test_bounds_by_hand() -> None:
    # p = (1/2, 1/4) shown of V = 4: R = 1/4 on one or two tokens.
    bounds = bound_entropy([math.log(0.5), math.log(0.25)], 4)
    head = 0.5 * math.log(2) + 0.25 * math.log(4)
    assert bounds.lower_nats == pytest.approx(head + 0.25 * math.log(4))
    assert bounds.upper_nats == pytest.approx(head + 0.25 * math.log(2) + 0.25 * math.log(4))


def test_bounds_are_exact_when_the_whole_vocabulary_is_shown() -> None:
    p = np.array([0.7, 0.2, 0.1])
    bounds = bound_entropy(np.log(p).tolist(), 3)
    assert bounds.lower_nats == bounds.upper_nats == pytest.approx(entropy(p))
    assert bound_entropy([0.0], 50_000).middle_nats == 0.0


@pytest.mark.parametrize("logprobs", [[], [-1.0, -2.0, -3.0]])
def test_bounds_refuse_an_impossible_head(logprobs: list[float]) -> None:
    with pytest.raises(ValueError, match="vocabulary"):
        bound_entropy(logprobs, 2)
