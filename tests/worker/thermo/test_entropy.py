"""Entropy and its bounds against plain numpy in double precision."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from worker.thermo.entropy import (
    InvalidRowError,
    Moments,
    normalise_entropy,
    observe,
    quantise_entropy,
)

Rows = NDArray[np.float32]


def probabilities(row: Rows, temperature: float = 1.0) -> NDArray[np.float64]:
    scaled = row.astype(np.float64) / temperature
    weights = np.exp(scaled - scaled.max())
    p: NDArray[np.float64] = weights / weights.sum()
    return p


def entropy(p: NDArray[np.float64]) -> float:
    positive = p[p > 0]
    return float(-(positive * np.log(positive)).sum())


@pytest.mark.parametrize("temperature", [0.3, 0.8, 1.0, 1.5])
def test_moments_of_real_logits_equal_numpy(recorded_logits: Rows, temperature: float) -> None:
    for row in recorded_logits:
        p = probabilities(row, temperature)
        log_p = np.log(np.maximum(p, 1e-300))
        seen = observe(row, temperature)
        assert seen.entropy_nats == pytest.approx(entropy(p), abs=2e-5)
        assert seen.normalised_entropy == pytest.approx(entropy(p) / math.log(len(row)), abs=2e-6)
        assert seen.gravity == pytest.approx(1 - entropy(p) / math.log(len(row)), abs=2e-6)
        assert seen.num_effective == pytest.approx(math.exp(entropy(p)), rel=1e-4)
        assert seen.p_max == pytest.approx(p.max(), rel=1e-5)
        assert seen.varentropy == pytest.approx(
            (p * log_p**2).sum() - (p * log_p).sum() ** 2, rel=1e-3, abs=1e-5
        )
        scaled = row.astype(np.float64) / temperature
        assert seen.log_normaliser == pytest.approx(
            np.log(np.exp(scaled - scaled.max()).sum()) + scaled.max()
        )


def test_varentropy_is_the_slope_of_entropy_over_log_temperature(recorded_logits: Rows) -> None:
    for row in recorded_logits[::10]:
        low, high = (entropy(probabilities(row, math.exp(at))) for at in (-1e-3, 1e-3))
        assert observe(row).varentropy == pytest.approx((high - low) / 2e-3, rel=1e-2, abs=1e-4)


def test_a_uniform_row_has_the_largest_entropy_and_no_gravity() -> None:
    seen = observe(np.zeros(1000, np.float32))
    assert seen.entropy_nats == pytest.approx(math.log(1000))
    assert seen.normalised_entropy == pytest.approx(1.0)
    assert seen.gravity == pytest.approx(0.0, abs=1e-6)
    assert seen.varentropy == pytest.approx(0.0, abs=1e-6)


def test_minus_infinity_is_dropped_and_shrinks_the_vocabulary() -> None:
    row = np.full(1000, -np.inf, np.float32)
    row[[3, 500, 999, 7]] = 2.0
    seen = observe(row)
    assert seen.entropy_nats == pytest.approx(math.log(4))
    assert seen.num_finite == 4
    assert seen.normalised_entropy == pytest.approx(1.0)


def test_a_mask_by_the_smallest_float_counts_as_minus_infinity() -> None:
    row = np.full(1000, np.finfo(np.float32).min, np.float32)
    row[:4] = 2.0
    for temperature in (1e-6, 0.5, 1.0):
        seen = observe(row, temperature)
        assert seen.entropy_nats == pytest.approx(math.log(4))
        assert seen.num_finite == 4
    with pytest.raises(InvalidRowError, match="no token"):
        observe(row[4:])


def test_a_single_possible_token_is_certain() -> None:
    row = np.full(10, -np.inf, np.float32)
    row[4] = -3.0
    seen = observe(row)
    assert (seen.entropy_nats, seen.normalised_entropy, seen.gravity, seen.p_max) == (0.0, 0.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("poison", "reason"), [(math.nan, "NaN"), (math.inf, "infinity"), (None, "no token")]
)
def test_a_row_without_a_distribution_is_refused(poison: float | None, reason: str) -> None:
    row = np.full(300, -np.inf, np.float32)
    if poison is not None:
        row = np.ones(300, np.float32)
        row[17] = poison
    with pytest.raises(InvalidRowError, match=reason):
        observe(row)


finite_rows = hnp.arrays(np.float32, st.integers(2, 200), elements=st.floats(-50, 50, width=32))


@given(finite_rows, st.floats(0.05, 5.0))
def test_normalised_entropy_stays_between_zero_and_one(row: Rows, temperature: float) -> None:
    seen = observe(row, temperature)
    assert 0.0 <= seen.normalised_entropy <= 1.0
    assert 0.0 <= seen.gravity <= 1.0
    assert seen.varentropy >= 0.0


@given(finite_rows, st.data())
def test_replacing_logits_equals_observing_the_new_row(row: Rows, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, len(row) - 1))
    ids = np.array(data.draw(st.permutations(range(len(row)))))[:count]
    change = data.draw(hnp.arrays(np.float32, count, elements=st.floats(-20, 20, width=32)))
    masked = data.draw(hnp.arrays(np.bool_, count))
    edited = row.copy()
    edited[ids] = np.where(masked, -np.inf, edited[ids] + change)
    replaced = observe(row).replaced(row[ids], edited[ids])
    if replaced is not None and np.isfinite(edited).any():
        p = probabilities(edited)
        assert replaced.entropy_nats == pytest.approx(entropy(p), abs=1e-3)
        assert replaced.num_finite == np.isfinite(edited).sum()


def test_replacing_refuses_what_it_cannot_do_exactly() -> None:
    row = np.array([10.0, 0.0, -1.0], np.float32)
    gone = np.array([-np.inf], np.float32)
    assert observe(row).replaced(row[:1], gone) is None
    assert observe(row, 0.01).replaced(row[2:], np.array([100.0], np.float32)) is None


def test_quantising_rounds_to_a_ten_thousandth_of_a_nat() -> None:
    assert quantise_entropy(2.00004) == 2.0
    assert quantise_entropy(2.00006) == pytest.approx(2.0001)
    assert normalise_entropy(1.0, 1) == 0.0


def test_moments_are_values() -> None:
    assert observe(np.zeros(4, np.float32)) == Moments(0.0, 1.0, 4.0, 0.0, 0.0, 4)
