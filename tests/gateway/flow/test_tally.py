"""What is known of an answer at its end, of one choice and of several."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.flow.explain import closing
from gateway.flow.tally import Tally

SUMMARY: dict[str, Any] = {
    "num_steps": 4,
    "mean_entropy_nats": 1.5,
    "mean_gravity": 0.9,
    "mean_k": 12.0,
    "entropic_time_nats": 2.0,
    "net_drop_nats": 0.5,
    "envelope_nats": 0.75,
}


def tally_of(*summaries: dict[str, Any]) -> Tally:
    tally = Tally(lambda: 0.0)
    for choice, summary in enumerate(summaries):
        tally.add_summary(choice, summary)
    return tally


def test_of_several_choices_cost_and_what_was_resolved_for_it_are_means() -> None:
    first = SUMMARY | {"cost_gmac": 0.5, "nats_per_gmac": 4.0, "cached_prompt_tokens": 32}
    second = SUMMARY | {"cost_gmac": 1.5, "entropic_time_nats": 6.0, "cached_prompt_tokens": 48}
    outcome = tally_of(first, second).outcome()
    assert outcome.cost_gmac == pytest.approx(1.0)
    assert outcome.nats_per_gmac == pytest.approx((2.0 + 6.0) / (0.5 + 1.5))
    assert outcome.cached_prompt_tokens == 32, "the others found what the first had computed"


def test_a_worker_that_counts_no_cost_has_none() -> None:
    outcome = tally_of(SUMMARY).outcome()
    assert (outcome.cost_gmac, outcome.nats_per_gmac, outcome.cached_prompt_tokens) == (None, None, None)
    assert outcome.entropic_time_nats == 2.0


def test_the_share_of_kv_blocks_is_told_where_a_task_drops_any() -> None:
    assert tally_of(SUMMARY).outcome().mean_kept_share is None
    first = SUMMARY | {"num_steps": 10, "mean_kept_share": 0.25}
    second = SUMMARY | {"num_steps": 30, "mean_kept_share": 0.75}
    outcome = tally_of(first, second).outcome()
    assert outcome.mean_kept_share == pytest.approx((10 * 0.25 + 30 * 0.75) / 40)
    assert closing(outcome)["mean_kept_share"] == outcome.mean_kept_share
    assert "mean_kept_share" not in closing(tally_of(SUMMARY).outcome())
