"""The candidates that a step keeps, by hand and by their limits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.thermo.adaptive import (
    calibrated_k,
    calibrated_p,
    openness,
    seed_k,
    smooth,
    spike_ceiling,
    weigh_in_peak,
)

shares = st.floats(0.0, 1.0)
ranges = st.tuples(st.integers(1, 500), st.integers(0, 500)).map(lambda pair: (pair[0], sum(pair)))


@pytest.mark.parametrize(
    ("s", "k"), [(0.821, 33), (0.694, 28), (0.312, 14), (0.207, 10), (0.0, 3), (1.0, 40)]
)
def test_the_plain_form_cuts_the_fraction_off(s: float, k: int) -> None:
    # 3 + 37 s = 33.377, 28.678, 14.544, 10.659
    assert seed_k(s, 3, 40) == k


@given(shares, ranges)
def test_k_stays_in_its_range(g: float, k_range: tuple[int, int]) -> None:
    k_min, k_max = k_range
    assert k_min <= seed_k(g, k_min, k_max) <= k_max
    assert k_min <= calibrated_k(g, k_min, k_max, "linear") <= k_max
    assert k_min <= calibrated_k(g, k_min, k_max, "geometric") <= k_max


@given(shares, shares)
def test_more_entropy_never_keeps_fewer(one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert seed_k(low, 3, 40) <= seed_k(high, 3, 40)
    assert calibrated_k(low, 3, 40, "geometric") <= calibrated_k(high, 3, 40, "geometric")
    assert calibrated_p(low, 0.8, 0.98, "linear") <= calibrated_p(high, 0.8, 0.98, "linear")


def test_the_calibrated_range_is_stretched_to_what_was_measured() -> None:
    assert openness(0.05, 0.05, 0.40) == 0.0
    assert openness(0.40, 0.05, 0.40) == 1.0
    assert openness(0.225, 0.05, 0.40) == pytest.approx(0.5)
    assert (openness(0.0, 0.05, 0.40), openness(0.9, 0.05, 0.40)) == (0.0, 1.0)


def test_the_geometric_curve_meets_the_middle_at_the_geometric_mean() -> None:
    assert calibrated_k(0.5, 4, 64, "geometric") == 16
    assert calibrated_k(0.5, 4, 64, "linear") == 34
    assert calibrated_p(0.5, 0.81, 1.0, "geometric") == pytest.approx(0.9)
    assert calibrated_p(0.5, 0.8, 1.0, "linear") == pytest.approx(0.9)


def test_smoothing_starts_at_the_first_value_and_weighs_history() -> None:
    first = smooth(None, 0.4, 0.8)
    assert first == 0.4
    assert smooth(first, 0.9, 0.8) == pytest.approx(0.8 * 0.4 + 0.2 * 0.9)
    assert smooth(0.4, 0.9, 0.0) == 0.9


def test_a_spike_is_measured_from_the_mean_of_the_recent_steps() -> None:
    assert spike_ceiling([0.1, 0.2, 0.3], 0.105) == pytest.approx(0.305)
    assert spike_ceiling([], 0.105) == 1.0


@pytest.mark.parametrize(
    ("g", "p_max", "expected"),
    [(0.9, 0.6, 0.5), (0.9, 0.05, 1.0), (0.9, 0.3, 0.9), (0.4, 0.6, 0.4), (0.4, 0.05, 0.4)],
)
def test_the_largest_probability_corrects_an_open_step(g: float, p_max: float, expected: float) -> None:
    assert weigh_in_peak(g, p_max, leader=0.5, flat=0.1) == expected
    assert weigh_in_peak(g, p_max, leader=None, flat=None) == g
