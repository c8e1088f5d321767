"""From measured steps to settings, with figures that were worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gateway.calibrate.profile import MeasuredTurn, profile
from worker.protocol import AdaptiveControls
from worker.thermo.adaptive import calibrated_k, openness

LN_V = math.log(1_000)


def turn(*entropies: float) -> MeasuredTurn:
    return MeasuredTurn(entropies, tuple(value / LN_V for value in entropies))


def test_the_range_is_the_5th_and_the_95th_percentile_of_s() -> None:
    # 101 steps, H from 0 to 5 nats: percentile q is q/20 nats.
    found = profile([turn(*(step / 20 for step in range(101)))])
    assert found.entropy_nats.at(5) == pytest.approx(0.25)
    assert found.entropy_nats.at(95) == pytest.approx(4.75)
    assert found.s.mean == pytest.approx(2.5 / LN_V)
    assert found.proposal.s_low == pytest.approx(0.036)  # 0.0362, and down
    assert found.proposal.s_high == pytest.approx(0.688)  # 0.6876, and up
    assert found.proposal.k_min == round(4 * math.exp(0.25)) == 5
    assert found.proposal.k_max == round(4 * math.exp(4.75)) == 462


def test_k_is_four_times_the_effective_candidates_in_between_too() -> None:
    proposal = profile([turn(*(step / 20 for step in range(101)))]).proposal
    controls = AdaptiveControls(
        k_min=proposal.k_min,
        k_max=proposal.k_max,
        s_low=proposal.s_low,
        s_high=proposal.s_high,
        curve="geometric",
    )
    for entropy in (1.0, 2.0, 3.0, 4.0):
        g = openness(entropy / LN_V, controls.s_low, controls.s_high)
        k = calibrated_k(g, controls.k_min, controls.k_max, controls.curve)
        assert k == pytest.approx(4 * math.exp(entropy), rel=0.12)


def test_all_steps_count_alike_and_s_mean_is_of_the_turns() -> None:
    found = profile([turn(*[1.0] * 30), turn(*[3.0] * 10)])
    assert found.s.num_values == 40
    assert found.entropy_nats.mean == pytest.approx(1.5)
    assert found.proposal.s_mean == pytest.approx(2.0 / LN_V, abs=5e-4)


def test_a_task_that_is_always_sure_still_gets_a_range() -> None:
    proposal = profile([turn(*[0.0] * 50)]).proposal
    assert (proposal.s_low, proposal.s_high, proposal.k_min, proposal.k_max) == (0.0, 0.01, 4, 4)
    AdaptiveControls(s_low=proposal.s_low, s_high=proposal.s_high, k_min=4, k_max=4)


def test_edges_are_the_quartiles_of_the_turns_and_need_eight_of_them() -> None:
    entropies = np.linspace(0.5, 4.0, 8)
    turns = [turn(float(value)) for value in entropies]
    expected = np.percentile(entropies / LN_V, (25, 50, 75)).round(3)
    assert profile(turns).proposal.edges == pytest.approx(tuple(expected))
    assert profile(turns[:7]).proposal.edges == ()
    assert profile([turn(1.0)] * 8).proposal.edges == (round(1.0 / LN_V, 3),)
