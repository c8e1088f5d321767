"""Draws against the inverse CDF written out in numpy, and against the distribution itself."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from worker.decode.randomness import uniform
from worker.decode.row import Row
from worker.decode.sampler import Draw, Limits, draw
from worker.thermo.entropy import InvalidRowError, observe

Logits = NDArray[np.float32]
GRID = (0.0, 0.01, 0.3, 0.5, 0.77, 0.9, 0.97, 0.999, 0.99999, 1.0 - 2**-53)


def loaded(logits: Logits) -> Row:
    row = Row(len(logits))
    row.load(logits)
    return row


@dataclass(frozen=True)
class InverseCdf:
    """Which u draws which token, in double precision."""

    intervals: dict[int, tuple[float, float]]
    num_candidates: int
    entropy_nats: float


def inverse_cdf(logits: Logits, limits: Limits) -> InverseCdf:
    z = logits.astype(np.float64)
    order = np.lexsort((np.arange(len(z)), -z))
    order = order[z[order] > -np.inf][: limits.top_k]
    num_candidates = len(order)
    p = np.exp((z[order] - z[order[0]]) / limits.temperature)
    p /= p.sum()
    above = np.concatenate([[0.0], np.cumsum(p)[:-1]])
    keep = ((above < limits.top_p) | (limits.top_p == 1.0)) & (p >= limits.min_p * p[0])
    keep[0] = True
    order, p = order[keep], p[keep] / p[keep].sum()
    upper = np.cumsum(p)
    positive = p[p > 0]
    return InverseCdf(
        intervals=dict(zip(order.tolist(), zip(upper - p, upper, strict=True), strict=True)),
        num_candidates=num_candidates,
        entropy_nats=float(-(positive * np.log(positive)).sum()),
    )


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p", "min_p"),
    [
        (1.0, 0, 1.0, 0.0),
        (0.7, 0, 1.0, 0.0),
        (1.5, 0, 1.0, 0.0),
        (1.0, 40, 1.0, 0.0),
        (0.8, 1000, 1.0, 0.0),
        (1.0, 0, 0.95, 0.0),
        (1.2, 0, 0.999, 0.0),
        (1.0, 0, 1.0, 0.05),
        (1.0, 0, 1.0, 1e-5),
        (0.9, 50, 0.9, 0.01),
        (0.6, 1, 1.0, 0.0),
    ],
)
def test_real_rows_are_drawn_by_inverse_cdf(
    recorded_logits: Logits, temperature: float, top_k: int, top_p: float, min_p: float
) -> None:
    limits = Limits(temperature, top_k or recorded_logits.shape[1], top_p, min_p)
    row = Row(recorded_logits.shape[1])
    for logits in recorded_logits[::8]:
        row.load(logits)
        expected = inverse_cdf(logits, limits)
        for u in GRID:
            drawn = draw(row, limits, u)
            low, high = expected.intervals[drawn.token_id]
            # The sum of all weights is a float32 one, which may move a nucleus by a token.
            assert low - 1e-5 <= u <= high + 1e-5
            assert drawn.num_candidates == expected.num_candidates
            assert drawn.entropy_nats == pytest.approx(expected.entropy_nats, abs=1e-4)


def test_plain_sampling_follows_the_softmax(recorded_logits: Logits) -> None:
    logits = min(recorded_logits, key=lambda row: abs(observe(row).entropy_nats - 3.0))
    row = loaded(logits)
    p = np.exp(logits.astype(np.float64) - logits.max())
    p /= p.sum()
    num_draws = 8000
    limits = Limits(1.0, len(logits))
    drawn = [draw(row, limits, uniform(7, 0, position)).token_id for position in range(num_draws)]
    counts = np.bincount(drawn, minlength=len(p))
    often = np.flatnonzero(p * num_draws >= 10)
    observed = np.append(counts[often], num_draws - counts[often].sum())
    expected = np.append(p[often], 1 - p[often].sum()) * num_draws
    chi_square = ((observed - expected) ** 2 / expected).sum()
    degrees = len(expected) - 1
    assert degrees >= 20
    # Wilson and Hilferty's normal approximation; 4 sigma.
    z = ((chi_square / degrees) ** (1 / 3) - (1 - 2 / (9 * degrees))) / math.sqrt(2 / (9 * degrees))
    assert abs(z) < 4


def test_a_flat_row_is_drawn_from_all_over() -> None:
    row = loaded(np.zeros(20_000, np.float32))
    limits = Limits(1.0, 20_000)
    assert [draw(row, limits, u).token_id for u in (0.0, 0.25, 0.5, 0.99995)] == [0, 5000, 10_000, 19_999]


@pytest.mark.parametrize("temperature", [1e-4, 1e-5, 1e-6])
def test_the_colder_the_nearer_to_greedy(recorded_logits: Logits, temperature: float) -> None:
    row = Row(recorded_logits.shape[1])
    for logits in recorded_logits:
        row.load(logits)
        for top_k in (5, len(logits)):
            drawn = draw(row, Limits(temperature, top_k), 0.999)
            assert logits[drawn.token_id] >= logits.max() - 10 * temperature
            assert 0.0 <= drawn.entropy_nats < 0.7


def test_cold_ties_are_still_drawn_evenly() -> None:
    row = loaded(np.array([1.0, 3.0, 3.0, 2.0], np.float32))
    assert [draw(row, Limits(1e-6, 4), u).token_id for u in (0.1, 0.49, 0.51, 0.9)] == [1, 1, 2, 2]


def test_a_nucleus_is_full_when_it_holds_its_mass_exactly() -> None:
    row = loaded(np.zeros(4, np.float32))
    assert {draw(row, Limits(1.0, 4, top_p=0.5), u).token_id for u in GRID} == {0, 1}
    assert {draw(row, Limits(1.0, 3, top_p=0.5), u).token_id for u in GRID} == {0, 1}


def test_greedy_takes_the_lowest_id_of_the_largest() -> None:
    row = loaded(np.array([1.0, 3.0, 3.0, 2.0], np.float32))
    assert draw(row, Limits(0.0, 4), 0.9) == Draw(1, 4, 0.0)


tied_rows = hnp.arrays(np.float32, st.integers(1, 200), elements=st.sampled_from([-1.0, 0.0, 1.0, 4.0]))


@given(
    tied_rows,
    st.floats(0.1, 3.0),
    st.integers(1, 250),
    st.floats(0.05, 1.0),
    st.floats(0.0, 1.0),
    st.floats(0.0, 1.0, exclude_max=True),
)
def test_any_draw_keeps_within_its_limits(
    logits: Logits, temperature: float, top_k: int, top_p: float, min_p: float, u: float
) -> None:
    drawn = draw(loaded(logits), Limits(temperature, top_k, top_p, min_p), u)
    rank = np.lexsort((np.arange(len(logits)), -logits)).tolist().index(drawn.token_id)
    assert drawn.num_candidates == min(top_k, len(logits))
    assert rank < drawn.num_candidates
    assert math.exp((logits[drawn.token_id] - logits.max()) / temperature) >= min_p * (1 - 1e-6)
    assert 0.0 <= drawn.entropy_nats <= math.log(drawn.num_candidates) + 1e-6


@given(tied_rows, st.floats(0.0, 1.0, exclude_max=True), st.floats(0.0, 1.0, exclude_max=True))
def test_a_larger_u_never_draws_a_likelier_token(logits: Logits, one: float, other: float) -> None:
    row, limits = loaded(logits), Limits(1.0, len(logits))
    low, high = sorted((one, other))
    first, second = draw(row, limits, low).token_id, draw(row, limits, high).token_id
    assert (-logits[first], first) <= (-logits[second], second)


def test_a_row_of_which_everything_was_masked_is_refused() -> None:
    row = loaded(np.array([1.0, 2.0], np.float32))
    row.edit(np.array([0, 1]), np.full(2, -np.inf, np.float32))
    with pytest.raises(InvalidRowError, match="no token"):
        draw(row, Limits(1.0, 2), 0.5)


def test_a_huge_bias_does_not_overflow() -> None:
    row = loaded(np.zeros(1000, np.float32))
    row.observe(0.01)
    row.edit(np.array([7]), np.array([100.0], np.float32))
    assert draw(row, Limits(0.01, 1000), 0.999) == Draw(7, 1000, 0.0)


def test_random_numbers_depend_on_seed_choice_and_position_alone() -> None:
    numbers = {
        uniform(seed, choice, position)
        for seed in (0, 1, -1, 2**64, 2**127)
        for choice in range(4)
        for position in range(50)
    }
    assert len(numbers) == 5 * 4 * 50
    assert all(0.0 <= number < 1.0 for number in numbers)
    assert uniform(42, 1, 3) == uniform(42, 1, 3)


def test_random_numbers_are_even() -> None:
    numbers = np.array([uniform(3, 0, position) for position in range(20_000)])
    counts, _ = np.histogram(numbers, bins=20, range=(0, 1))
    assert ((counts - 1000) ** 2 / 1000).sum() < 45  # chi-square with 19 degrees of freedom, p < 0.001
    assert abs(np.corrcoef(numbers[:-1], numbers[1:])[0, 1]) < 0.03
