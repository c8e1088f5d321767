"""Entropic time by hand."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.protocol import StepRecord, TurnSummary
from worker.thermo.entropic_time import StepCost, entropic_time, envelope, net_drop, summarise, with_cost

RECORD = StepRecord(
    token_id=1,
    logprob=-1.0,
    entropy_nats=0.0,
    normalised_entropy=0.25,
    gravity=0.75,
    varentropy=1.0,
    p_max=0.5,
    k=10,
    p=1.0,
    temperature=1.0,
    bias_nats=0.0,
    entropy_after_nats=0.0,
    bucket=-1,
    accepted_draft=0,
    engine_step=0,
    batch_size=1,
)


def test_only_falling_steps_count() -> None:
    assert entropic_time([3.0, 1.0, 2.0, 0.5]) == pytest.approx(2.0 + 1.5)
    assert net_drop([3.0, 1.0, 2.0, 0.5]) == pytest.approx(2.5)


@given(st.lists(st.floats(0.0, 11.0), min_size=1, max_size=50))
def test_it_is_half_of_net_drop_plus_total_variation(entropies: list[float]) -> None:
    variation = sum(abs(b - a) for a, b in itertools.pairwise(entropies))
    assert entropic_time(entropies) == pytest.approx((net_drop(entropies) + variation) / 2, abs=1e-9)


def test_the_envelope_ignores_a_single_dip() -> None:
    # e = 3, 0.7*3 + 0.3*1 = 2.4, 0.7*2.4 + 0.3*3 = 2.58
    assert envelope([3.0, 1.0, 3.0]) == pytest.approx(0.6)
    assert envelope([1.0, 2.0, 3.0]) == 0.0


def test_noise_around_a_level_grows_tau_but_neither_net_drop_nor_envelope() -> None:
    noise = [2.0, 2.4, 1.6] * 50 + [2.0]
    assert entropic_time(noise) > 30.0
    assert net_drop(noise) == 0.0
    assert envelope(noise) < 0.3


def test_a_turn_is_summed_up() -> None:
    records = [replace(RECORD, entropy_nats=h, k=k) for h, k in ((3.0, 30), (0.5, 10), (2.5, 20))]
    assert summarise(records).model_dump(exclude_none=True) == pytest.approx(
        {
            "num_steps": 3,
            "mean_entropy_nats": 2.0,
            "mean_gravity": 0.75,
            "mean_k": 20.0,
            "entropic_time_nats": 2.5,
            "net_drop_nats": 0.5,
            "envelope_nats": 0.75,
            "cost_gmac": 0.0,
            "nats_per_gmac": 0.0,
            "cached_prompt_tokens": 0,
            "num_accepted_drafts": 0,
        }
    )


def test_the_cost_of_steps_is_the_sum_over_them() -> None:
    cost = StepCost(num_parameters=1_000_000, kv_width=200)
    # The first token is drawn behind the prompt's last; every one after it attends to one position more.
    by_hand = sum(1_000_000 + 200 * (30 + step) for step in range(12)) / 1e9
    assert cost.of_steps_gmac(num_prompt=30, num_steps=12) == pytest.approx(by_hand)
    assert cost.of_steps_gmac(30, 0) == 0.0
    # With a quarter of the text attended to, a quarter of what is not weights is left.
    weights = 12 * 1_000_000 / 1e9
    narrow = cost.of_steps_gmac(num_prompt=30, num_steps=12, kept_share=0.25)
    assert narrow - weights == pytest.approx((by_hand - weights) / 4)
    summary = with_cost(summarise([replace(RECORD, entropy_nats=h) for h in (3.0, 1.0)]), 0.5)
    assert (summary.cost_gmac, summary.nats_per_gmac) == (0.5, 4.0)


def test_a_turn_without_tokens_is_all_zero() -> None:
    assert summarise([]) == TurnSummary(
        num_steps=0,
        mean_entropy_nats=0.0,
        mean_gravity=0.0,
        mean_k=0.0,
        entropic_time_nats=0.0,
        net_drop_nats=0.0,
        envelope_nats=0.0,
    )
