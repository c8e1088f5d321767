"""Intervals that may be looked at all the time: the formula by hand, and by simulated experiments."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import optimize, stats  # type: ignore[import-untyped]

from gateway.lab.sequential import (
    MIN_UNITS,
    TUNED_UNITS,
    Sample,
    boundary,
    difference_interval,
    difference_precision,
    mean_interval,
    tightest_time,
    units_needed,
)
from tests.gateway.lab.looking import Floats, Moments, difference_at_looks, judged, mean_misses, moments

RUNS, UNITS = 400, 2_000
LATENCY_SIGMA = 0.8
"""Of the logarithm: a skewness of 3.7, with some answers ten times slower than the median."""


def drawn(shape: str, seed: int, runs: int = RUNS, units: int = UNITS) -> Floats:
    random = np.random.default_rng(seed)
    match shape:
        case "normal":
            return random.standard_normal((runs, units))
        case "latencies":
            return random.lognormal(0.0, LATENCY_SIGMA, (runs, units))
        case _:
            return (random.random((runs, units)) < float(shape)).astype(float)


def arms(seed: int, share: float = 0.5, runs: int = RUNS, units: int = UNITS) -> np.ndarray:
    return np.random.default_rng(1_000 + seed).random((runs, units)) < share


def test_the_boundary_is_narrowest_at_the_units_that_it_is_tuned_for() -> None:
    found = optimize.minimize_scalar(boundary, bounds=(10.0, 10_000.0), method="bounded")
    assert found.x == pytest.approx(TUNED_UNITS, rel=1e-3)
    y = tightest_time(0.05)
    assert y == pytest.approx(math.log((y + 1) / 0.05**2), rel=1e-12)
    assert boundary(TUNED_UNITS) == pytest.approx(math.sqrt(1 + y), rel=1e-12)  # both formulas meet there


@pytest.mark.parametrize("num_units", [40, 500, 5_000, 100_000])
def test_the_boundary_is_robbins_normal_mixture(num_units: int) -> None:
    """The mixture of likelihood ratios over a normal prior is 1 / alpha there, integrated numerically."""
    prior = math.sqrt(tightest_time(0.05) / TUNED_UNITS)
    total = boundary(num_units) * math.sqrt(num_units)  # a sum of units of variance 1
    effects = np.linspace(-6 * prior, 6 * prior, 10_001)
    ratios = np.exp(effects * total - num_units * effects**2 / 2)
    mixture = np.trapezoid(ratios * stats.norm.pdf(effects, scale=prior), effects)
    assert mixture == pytest.approx(1 / 0.05, rel=1e-6)


def test_a_difference_by_hand() -> None:
    ours, theirs = [0.0, 2.0] * 10, [0.0, 1.0, 2.0, 3.0] * 10
    interval = difference_interval(Sample.of(ours), Sample.of(theirs))
    welch = stats.ttest_ind(ours, theirs, equal_var=False)
    variance = (20 / 19) / 20 + (50 / 39) / 40
    error = math.sqrt(variance)
    y = tightest_time(0.05) * 60 / TUNED_UNITS
    factor = math.sqrt((1 + 1 / y) * math.log((y + 1) / 0.05**2))
    expected = error * stats.t.isf(stats.norm.sf(factor), welch.df)  # neither arm is skewed
    assert interval.mean == -0.5
    assert interval.mean / error == pytest.approx(welch.statistic)
    assert interval.high - interval.mean == pytest.approx(expected, rel=1e-9)
    assert interval.mean - interval.low == pytest.approx(expected, rel=1e-9)


def test_a_mean_by_hand_with_its_skewness() -> None:
    units = [0.0, 0.0, 0.0, 4.0] * 8
    interval = mean_interval(Sample.of(units))
    variance = 32 * 3 / 31
    skewness = (np.array(units) - 1) ** 3
    g = skewness.mean() / variance**1.5 / math.sqrt(32)
    y = tightest_time(0.05) * 32 / TUNED_UNITS
    factor = stats.t.isf(stats.norm.sf(math.sqrt((1 + 1 / y) * math.log((y + 1) / 0.05**2))), 31)
    expected = math.sqrt(variance / 32) * (factor + g * (2 * factor**2 + 1) / 6)
    assert interval.mean == 1.0
    assert interval.high - 1.0 == pytest.approx(expected, rel=1e-9)


def test_a_smaller_alpha_is_wider() -> None:
    sample, other = Sample(300, 1.0, 1.0), Sample(300, 0.5, 1.0)
    wide, narrow = difference_interval(sample, other, 0.01), difference_interval(sample, other)
    assert wide.low < narrow.low < narrow.mean < narrow.high < wide.high


def test_nothing_is_said_below_the_smallest_number_of_units() -> None:
    few = difference_interval(Sample.of([0.0, 9.0] * 9 + [1.0]), Sample.of([0.0, 1.0] * 500))
    assert (few.low, few.high) == (-math.inf, math.inf)
    assert few.mean == pytest.approx(82 / 19 - 0.5)
    enough = difference_interval(Sample.of([0.0, 9.0] * (MIN_UNITS // 2)), Sample.of([0.0, 1.0] * 500))
    assert math.isfinite(enough.low)
    none = mean_interval(Sample.of([]))
    assert math.isnan(none.mean)
    assert none.high == math.inf


def test_units_that_are_all_alike_say_nothing() -> None:
    alike = difference_interval(Sample.of([16.0] * 50), Sample.of([15.0] * 50))
    assert (alike.mean, alike.low, alike.high) == (1.0, -math.inf, math.inf)
    assert mean_interval(Sample.of([0.1] * 300)).low == -math.inf  # a tenth has no exact sum


def test_an_arm_that_is_all_alike_is_taken_to_vary_as_the_other() -> None:
    varied = Sample.of([0.0, 2.0] * 25)
    alike = difference_interval(Sample.of([5.0] * 50), varied)
    precision = difference_precision(Sample.of([5.0] * 50), varied)
    assert precision.standard_error == pytest.approx(math.sqrt(2 * (50 / 49) / 50))
    assert alike.low < 4.0 < alike.high


@pytest.mark.parametrize("num_units", [20, 100, 1_000])
def test_events_that_never_happened_may_happen(num_units: int) -> None:
    nothing = Sample.of([0.0] * num_units, is_share=True)
    interval = difference_interval(nothing, nothing)
    rule_of_three = 3.0 / num_units  # the fixed 95 % bound of no event in n (Hanley and Lippman-Hand 1983)
    assert interval.mean == 0.0
    assert rule_of_three < interval.high < 4 * rule_of_three
    assert difference_interval(Sample.of([1.0] * num_units, is_share=True), nothing).excludes_zero


@pytest.mark.parametrize("shape", ["normal", "latencies", "0.01", "0.1", "0.5"])
def test_an_a_a_experiment_is_hardly_ever_decided_however_often_one_looks(shape: str) -> None:
    looks = difference_at_looks(drawn(shape, 1), arms(1))
    assert looks.margins.shape == (RUNS, 100)
    assert looks.ever_excludes(0.0) <= 0.05


@pytest.mark.parametrize("shape", ["normal", "latencies", "0.5"])
def test_a_z_test_that_is_peeked_at_decides_more_than_a_quarter_of_them(shape: str) -> None:
    assert difference_at_looks(drawn(shape, 1), arms(1)).z_test_ever_fires() > 0.25


@pytest.mark.parametrize("shape", ["normal", "latencies", "0.02", "0.1"])
def test_arms_of_unequal_size_are_no_exception(shape: str) -> None:
    assert difference_at_looks(drawn(shape, 2), arms(2, share=0.1)).ever_excludes(0.0) <= 0.05


@pytest.mark.parametrize("shape", ["normal", "latencies", "0.5"])
def test_the_true_difference_lies_inside_at_all_times(shape: str) -> None:
    is_ours = arms(3)
    effect = 0.4
    assert difference_at_looks(drawn(shape, 3) + effect * is_ours, is_ours).ever_excludes(effect) <= 0.05


@pytest.mark.parametrize(
    ("shape", "truth"), [("normal", 0.0), ("latencies", math.exp(LATENCY_SIGMA**2 / 2)), ("0.1", 0.1)]
)
def test_the_true_mean_lies_inside_at_all_times(shape: str, truth: float) -> None:
    assert mean_misses(drawn(shape, 4), truth) <= 0.05


@pytest.mark.parametrize("shared", [0.0, 0.5])
def test_turns_that_come_late_to_units_that_are_in_decide_nothing(shared: float) -> None:
    """Units have three turns, two of them at any time later; ``shared`` of the variance is the unit's.

    One goes on looking when no new unit comes any more.
    """
    runs, units = RUNS, 400
    random = np.random.default_rng(6)
    is_ours = arms(6, runs=runs, units=units)
    own = random.normal(0.0, math.sqrt(1 - shared), (runs, units, 3))
    values = random.normal(0.0, math.sqrt(shared), (runs, units, 1)) + own
    later = np.cumsum(random.exponential(150.0, (runs, units, 2)), axis=2)
    times = np.arange(units)[:, None] + np.concatenate([np.zeros((runs, units, 1)), later], axis=2)
    ever = np.zeros(runs, bool)
    for now in range(40, 2 * units, 40):
        seen = times < now
        counts = seen.sum(axis=2)
        means = (values * seen).sum(axis=2) / np.maximum(1, counts)
        last = np.array([units - 1])
        looks = judged(*(moments(means, arm & (counts > 0), last) for arm in (is_ours, ~is_ours)))
        ever |= (np.abs(looks.differences) > looks.margins)[:, 0]
    assert ever.mean() <= 0.05


def test_an_effect_of_a_third_of_a_deviation_is_found_at_a_known_price() -> None:
    effect = 0.3
    is_ours = arms(5)
    looks = difference_at_looks(drawn("normal", 5) + effect * is_ours, is_ours)
    units = looks.first(np.abs(looks.differences) > looks.margins)
    # The z-test of one look has power 0.8 at 4 (1.96 + 0.84)^2 / effect^2 units in both arms.
    fixed = 4 * (stats.norm.isf(0.025) + stats.norm.isf(0.2)) ** 2 / effect**2
    assert fixed == pytest.approx(349, abs=1)
    assert (units <= 1_000).mean() >= 0.95
    assert np.quantile(units, 0.8) <= 2.0 * fixed
    assert np.minimum(units, UNITS).mean() <= 1.4 * fixed


@pytest.mark.parametrize("shape", ["latencies", "0.02"])
def test_the_functions_for_one_experiment_are_those_that_were_simulated(shape: str) -> None:
    values, is_ours = drawn(shape, 7, 1, 200), arms(7, share=0.3, runs=1, units=200)
    is_share = shape != "latencies"
    looks = difference_at_looks(values, is_ours)
    for look, num_units in enumerate(range(20, 201, 20)):
        so_far, chosen = values[0, :num_units], is_ours[0, :num_units]
        ours, theirs = (Sample.of(so_far[arm], is_share=is_share) for arm in (chosen, ~chosen))
        interval = difference_interval(ours, theirs)
        assert interval.mean == pytest.approx(looks.differences[0, look], rel=1e-9)
        if not np.isnan(looks.margins[0, look]):
            assert interval.high - interval.mean == pytest.approx(looks.margins[0, look], rel=1e-6)


def test_the_number_of_units_needed_is_where_the_interval_leaves_zero() -> None:
    needed = units_needed(0.3, 4.0)
    at = boundary(needed) * math.sqrt(4.0 / needed)
    assert at == pytest.approx(0.3, rel=1e-3)
    assert at < 0.3
    assert units_needed(-0.3, 4.0) == needed
    assert units_needed(0.6, 4.0) < needed / 3
    assert units_needed(0.0, 4.0) == math.inf


def test_moments_are_scipys() -> None:
    values = drawn("latencies", 8, 2, 50)
    found: Moments = moments(values, np.ones_like(values, bool), np.array([49]))
    assert found.variances[:, 0] == pytest.approx(values.var(axis=1, ddof=1))
    sample = Sample.of(values[0])
    assert sample.variance == pytest.approx(stats.tvar(values[0]))
    assert sample.skewness == pytest.approx(stats.skew(values[0]) * (49 / 50) ** 1.5)
    assert found.skewness[0, 0] == pytest.approx(sample.skewness)
