"""How long a worker may stay silent, worked out with numpy's quantile or by hand."""

from __future__ import annotations

import numpy as np
import pytest

from gateway.pool.patience import BeginTimes, HedgeBudget, PatienceSettings, patience_s

SETTINGS = PatienceSettings(factor=3.0, floor_s=0.5, ceiling_s=20.0)


def times_of(*seconds: float, num_chars: int = 2_048) -> BeginTimes:
    times = BeginTimes()
    for each in seconds:
        times.observe(num_chars, each)
    return times


def test_what_is_usual_is_the_95th_percentile() -> None:
    drawn = np.random.default_rng(7).gamma(2.0, 0.1, 100)
    usual = times_of(*drawn).usual_s(2_048)
    assert usual == pytest.approx(np.quantile(drawn, 0.95, method="inverted_cdf"))


def test_a_longer_prompt_may_take_longer_in_proportion_to_its_tokens() -> None:
    times = times_of(*[1.0] * 20)  # 512 fixed tokens and 2,048 / 4 of prompt
    assert times.usual_s(2_048) == pytest.approx(1.0)
    assert times.usual_s(2_048 + 4 * 1_024) == pytest.approx(2.0)
    assert times.usual_s(0) == pytest.approx(0.5)


def test_old_times_are_forgotten() -> None:
    times = times_of(*[9.0] * 200, *[1.0] * 128)
    assert times.usual_s(2_048) == pytest.approx(1.0)


def test_of_too_few_times_nothing_is_concluded_and_another_workers_are_taken() -> None:
    few, many = times_of(*[1.0] * 15), times_of(*[2.0] * 16)
    assert few.usual_s(2_048) is None
    assert patience_s(SETTINGS, few, [], 2_048) is None
    assert patience_s(SETTINGS, few, [few, many], 2_048) == pytest.approx(6.0)
    assert patience_s(SETTINGS, many, [], 2_048) == pytest.approx(6.0)


@pytest.mark.parametrize(("usual_s", "patience"), [(0.01, 0.5), (1.0, 3.0), (10.0, 20.0)])
def test_patience_has_a_floor_and_a_ceiling(usual_s: float, patience: float) -> None:
    assert patience_s(SETTINGS, times_of(*[usual_s] * 16), [], 2_048) == pytest.approx(patience)


def test_factor_zero_is_patience_without_end() -> None:
    endless = PatienceSettings(factor=0.0, floor_s=0.5, ceiling_s=20.0)
    assert patience_s(endless, times_of(*[1.0] * 16), [], 2_048) is None


def test_a_tenth_of_the_turns_may_be_sent_twice_after_ten_at_once() -> None:
    budget = HedgeBudget()
    assert [budget.spend() for _ in range(11)] == [True] * 10 + [False]
    num_second = 0
    for _ in range(1_000):
        budget.earn()
        num_second += budget.spend()
    assert 99 <= num_second <= 100
