"""The strength of the pull over time."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from worker.thermo.gravity import (
    Stage,
    approach,
    bound_bias,
    drift_strength,
    half_life_decay,
    linear_decay,
    plausible_logit,
    stage_target,
)


def test_linear_decay_is_full_then_falls_to_nothing_over_as_many_steps_again() -> None:
    assert [linear_decay(step, 50) for step in (0, 49, 50)] == [1.0, 1.0, 1.0]
    assert linear_decay(75, 50) == pytest.approx(0.5)
    assert [linear_decay(step, 50) for step in (100, 101, 10_000)] == [0.0, 0.0, 0.0]
    assert [linear_decay(step, 0) for step in (0, 1)] == [1.0, 0.0]


def test_half_life_decay_halves_again_and_again() -> None:
    assert half_life_decay(50, 50, 20) == 1.0
    assert half_life_decay(70, 50, 20) == pytest.approx(0.5)
    assert half_life_decay(110, 50, 20) == pytest.approx(0.125)


def test_the_plausible_set_begins_at_a_share_of_the_largest_probability() -> None:
    logits = np.array([4.0, 2.5, 0.0])
    for temperature in (0.5, 1.0, 2.0):
        p = np.exp(logits / temperature)
        floor = plausible_logit(4.0, temperature, 0.05)
        assert ((p >= 0.05 * p.max()) == (logits >= floor)).all()
    assert plausible_logit(4.0, 1.0, 0.0) == -math.inf


def test_the_last_stage_that_began_is_in_force() -> None:
    stages = (Stage(0, 0.2), Stage(10, 1.0), Stage(30, 2.0))
    assert [stage_target(stages, step) for step in (0, 9, 10, 29, 30, 500)] == [0.2, 0.2, 1.0, 1.0, 2.0, 2.0]
    assert stage_target(stages[1:], 5) == 1.0


@pytest.mark.parametrize("nats_per_unit", [0.3, 2.0, 6.0])
def test_a_new_stage_moves_no_bias_by_more_than_half_a_nat_a_step(nats_per_unit: float) -> None:
    factors = [0.0]
    while factors[-1] != 3.0:
        factors.append(approach(factors[-1], 3.0, nats_per_unit))
        assert len(factors) < 100
    changes = [abs(b - a) * nats_per_unit for a, b in itertools.pairwise(factors)]
    assert max(changes) <= 0.5 + 1e-9
    assert factors == sorted(factors)
    assert approach(1.0, 0.0, 0.0) == 0.0


def test_the_farther_from_the_theme_the_stronger_the_pull() -> None:
    near, at_target, far = (drift_strength(1.2, drift, 0.5, 0.8, 3.0) for drift in (0.2, 0.5, 1.0))
    assert near < at_target < far
    assert at_target == pytest.approx(1.2)
    assert far == pytest.approx(1.2 * math.exp(0.8 * 0.5))
    assert drift_strength(2.9, 2.0, 0.5, 10.0, 3.0) == 3.0


def settled_drift(gain: float, start: float) -> float:
    """A text that wanders off by itself, towards 1, and is pulled back by the strength of gravity."""
    drift = start
    for _ in range(300):
        drift += 0.2 * (1.0 - 0.3 * drift_strength(1.0, drift, 0.5, gain, 3.0) - drift)
    return drift


@pytest.mark.parametrize("start", [0.2, 0.9])
def test_drift_feedback_is_negative_feedback_with_the_plus_sign(start: float) -> None:
    without, plus, minus = (settled_drift(gain, start) for gain in (0.0, +3.0, -3.0))
    assert without == pytest.approx(0.7)
    assert 0.5 < plus < without < minus


def test_no_bias_leaves_its_bounds() -> None:
    assert bound_bias(np.array([-9.0, -1.0, 0.0, 2.0, 9.0]), 3.0).tolist() == [-3.0, -1.0, 0.0, 2.0, 3.0]
