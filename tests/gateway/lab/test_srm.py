"""The check of the arms' sizes: against scipy, exactly for few units, and by simulation."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats  # type: ignore[import-untyped]

from gateway.lab.srm import ALARM_P, log_bayes_factor, sample_ratio, widths
from gateway.store.document import Arm

HALVES = (Arm(name="treatment", start=0.0), Arm(name="control", start=0.5))
THREE = (Arm(name="a", start=0.0), Arm(name="b", start=0.1), Arm(name="c", start=0.4))


def test_an_arm_is_as_wide_as_the_way_to_the_next_start() -> None:
    assert widths(THREE) == pytest.approx({"a": 0.1, "b": 0.3, "c": 0.6})


def test_chi_square_and_its_p_value_are_scipys() -> None:
    found = sample_ratio({"a": 130, "b": 280, "c": 590}, THREE)
    theirs = stats.chisquare([130, 280, 590], [100, 300, 600])
    assert found.chi_square == pytest.approx(theirs.statistic)
    assert found.p_value == pytest.approx(theirs.pvalue)
    assert dict(found.expected) == pytest.approx({"a": 100.0, "b": 300.0, "c": 600.0})


def test_the_bayes_factor_of_two_arms_is_a_beta_binomial() -> None:
    counts = np.array([33.0, 17.0])
    mixture = stats.betabinom.logpmf(33, 50, 50.0, 50.0) - stats.binom.logpmf(33, 50, 0.5)
    assert log_bayes_factor(counts, np.array([0.5, 0.5])) == pytest.approx(mixture)


@pytest.mark.parametrize("num_units", [1, 4, 9])
def test_the_bayes_factor_has_the_mean_one_where_the_shares_are_right(num_units: int) -> None:
    """Summed over all outcomes: so it is a martingale that begins at 1, and Ville's inequality holds."""
    shares = np.array([0.1, 0.3, 0.6])
    total = 0.0
    for a, b in itertools.product(range(num_units + 1), repeat=2):
        if a + b <= num_units:
            counts = [a, b, num_units - a - b]
            probability = float(stats.multinomial.pmf(counts, num_units, shares))
            total += probability * math.exp(log_bayes_factor(np.array(counts, float), shares))
    assert total == pytest.approx(1.0)


def test_52_to_48_of_20_000_alarms() -> None:
    found = sample_ratio({"treatment": 10_400, "control": 9_600}, HALVES)
    assert found.chi_square == pytest.approx(32.0)  # 2 * 400^2 / 10,000
    assert found.is_alarm
    assert found.anytime_p_value < ALARM_P


def test_even_halves_of_20_000_do_not_alarm() -> None:
    counts = np.random.default_rng(1).binomial(20_000, 0.5, 2_000)
    alarms = [sample_ratio({"treatment": int(n), "control": 20_000 - int(n)}, HALVES) for n in counts]
    assert np.mean([each.is_alarm for each in alarms]) <= 0.005
    assert not any(each.anytime_p_value < ALARM_P for each in alarms)


def test_the_anytime_p_value_of_even_halves_hardly_ever_falls_below_its_level() -> None:
    """Looked at after each 100 of 20,000 units: where 5 % is the level, 5 % is the bound."""
    flips = np.random.default_rng(2).random((300, 20_000)) < 0.5
    ours = np.cumsum(flips, axis=1)[:, 99::100]
    ever = 0
    for run in ours:
        p = [
            sample_ratio({"treatment": int(n), "control": 100 * look - int(n)}, HALVES).anytime_p_value
            for look, n in enumerate(run, 1)
            if look % 10 == 0
        ]
        ever += min(p) < 0.05
    assert ever / 300 <= 0.05


def test_no_units_and_one_arm_fit() -> None:
    for found in (sample_ratio({}, HALVES), sample_ratio({"treatment": 9}, HALVES[:1])):
        assert (found.p_value, found.anytime_p_value, found.is_alarm) == (1.0, 1.0, False)


def test_an_arm_without_any_unit_alarms() -> None:
    assert sample_ratio({"treatment": 200_000}, HALVES).is_alarm
