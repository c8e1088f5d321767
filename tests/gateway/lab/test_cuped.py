"""Adjustment by the period before: by hand, against scipy's regression, and by simulation."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats  # type: ignore[import-untyped]

from gateway.lab.cuped import MIN_UNITS_BEFORE, adjusted

CORRELATION = 0.8


def units(seed: int, num_units: int = 400, effect: float = 0.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    arms = (random.random(num_units) < 0.5).astype(np.int64)
    before = random.standard_normal(num_units)
    rest = np.sqrt(1 - CORRELATION**2) * random.standard_normal(num_units)
    return CORRELATION * before + rest + effect * arms, before, arms


def test_by_hand_with_four_kinds_of_units() -> None:
    # In each arm x is 0, 2 and y - mean of y is -1, +1: theta = cov / var = 1.
    before = np.array([0.0, 2.0, 0.0, 2.0] * 20)
    values = np.array([4.0, 6.0, 7.0, 9.0] * 20)
    arms = np.array([0, 0, 1, 1] * 20)
    result = adjusted(values, before, arms)
    assert result is not None
    assert result[1].theta == pytest.approx(1.0)
    assert result[0] == pytest.approx([5.0, 5.0, 8.0, 8.0] * 20)
    assert result[1].variance_reduction == pytest.approx(1.0)


def test_theta_is_the_slope_of_a_regression_inside_the_arms() -> None:
    values, before, arms = units(1, effect=3.0)
    result = adjusted(values, before, arms)
    assert result is not None
    centred = [
        each - np.where(arms == 1, each[arms == 1].mean(), each[arms == 0].mean())
        for each in (before, values)
    ]
    assert result[1].theta == pytest.approx(stats.linregress(*centred).slope)


def test_the_variance_falls_by_the_square_of_the_correlation() -> None:
    reductions = []
    for seed in range(50):
        result = adjusted(*units(seed))
        assert result is not None
        reductions.append(result[1].variance_reduction)
    assert np.mean(reductions) == pytest.approx(CORRELATION**2, abs=0.01)


def test_the_effect_stays_what_it_is_and_is_measured_better() -> None:
    effect = 0.3
    plain: list[float] = []
    better: list[float] = []
    for seed in range(300):
        values, before, arms = units(seed, effect=effect)
        result = adjusted(values, before, arms)
        assert result is not None
        for kept, each in ((plain, values), (better, result[0])):
            kept.append(each[arms == 1].mean() - each[arms == 0].mean())
    error = np.std(better) / np.sqrt(300)
    assert abs(np.mean(better) - effect) < 3 * error
    assert np.var(better) / np.var(plain) == pytest.approx(1 - CORRELATION**2, rel=0.3)


def test_units_without_a_period_before_stay_as_they_are() -> None:
    values, before, arms = units(2)
    before[::2] = np.nan
    result = adjusted(values, before, arms)
    assert result is not None
    assert result[0][::2] == pytest.approx(values[::2], rel=1e-15)
    assert result[1].num_units == 200
    assert result[1].variance_reduction == pytest.approx(CORRELATION**2 / 2, abs=0.06)


def test_too_few_units_or_no_variance_before_means_no_adjustment() -> None:
    values, before, arms = units(3)
    few = before.copy()
    few[MIN_UNITS_BEFORE - 1 :] = np.nan
    assert adjusted(values, few, arms) is None
    assert adjusted(values, np.full(400, 0.1), arms) is None
    few[:MIN_UNITS_BEFORE] = before[:MIN_UNITS_BEFORE]
    assert adjusted(values, few, arms) is not None
