"""The gateway's own copy of the bounds: as the worker's, and around the entropy that numpy computes."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gateway.lab.entropy_bounds import UNKNOWN, bound_entropy
from worker.thermo import bounds

VOCABULARY_SIZE = 500


def distribution(seed: int) -> np.ndarray:
    """Log-probabilities, the largest first: sharper and flatter ones."""
    generator = np.random.default_rng(seed)
    logits = generator.normal(size=VOCABULARY_SIZE) * generator.uniform(0.1, 6.0)
    return np.sort(logits - np.logaddexp.reduce(logits))[::-1]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("num_shown", [1, 5, 20])
def test_gateway_and_worker_agree_and_the_entropy_lies_between(seed: int, num_shown: int) -> None:
    logprobs = distribution(seed)
    shown = [float(value) for value in logprobs[:num_shown]]
    own = bound_entropy(shown, shown[-1], VOCABULARY_SIZE)
    others = bounds.bound_entropy(shown, VOCABULARY_SIZE)
    assert own == pytest.approx((others.lower_nats, others.upper_nats), abs=1e-12)
    exact = float(-(np.exp(logprobs) * logprobs).sum())
    assert own.lower_nats - 1e-9 <= exact <= own.upper_nats + 1e-9


@pytest.mark.parametrize("seed", range(20))
def test_where_nothing_is_known_of_the_hidden_the_bounds_are_looser_and_hold(seed: int) -> None:
    logprobs = distribution(seed)
    without_the_likeliest = [float(value) for value in logprobs[1:6]]
    lower, upper = bound_entropy(without_the_likeliest, UNKNOWN, VOCABULARY_SIZE)
    exact = float(-(np.exp(logprobs) * logprobs).sum())
    assert lower - 1e-9 <= exact <= upper + 1e-9


def test_what_is_shown_whole_has_no_width() -> None:
    halves = [math.log(0.5)] * 2
    assert bound_entropy(halves, halves[0], 2) == pytest.approx((math.log(2), math.log(2)))


def test_a_vocabulary_smaller_than_what_is_shown_hides_nothing() -> None:
    shown = [math.log(0.5), math.log(0.25), math.log(0.125)]
    expected = 0.5 * math.log(2) + 0.25 * math.log(4) + 0.125 * math.log(8)
    assert bound_entropy(shown, shown[-1], 2) == pytest.approx((expected, expected))
