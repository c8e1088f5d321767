"""What many replays come to, added up by hand."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from gateway.replay.alternative import Alternative, ChoicePair
from gateway.replay.base import Base
from gateway.replay.batch import most_common_model, summarise
from gateway.replay.batch_report import as_json, print_batch
from gateway.replay.request import SettingChange
from gateway.replay.side import Side, first_divergence
from gateway.trace.query import TurnSummaryRow


def side(tokens: tuple[int, ...], entropies_nats: tuple[float, ...]) -> Side:
    return Side(tokens, "", entropies_nats, (0.5,) * len(tokens), (10.0,) * len(tokens))


def pair(then: Side, now: Side) -> ChoicePair:
    return ChoicePair(0, Base(then, "the record", True), now, first_divergence(then, now))


def alternative(
    name: str, *pairs: ChoicePair, kept_now: tuple[str, ...] = ("a", "b"), tokens: int = 90
) -> Alternative:
    changes = (SettingChange("gravity.strength", 1.0, 8.0),) if pairs else ()
    return Alternative(
        turn_id=name,
        task="default",
        lane="treatment",
        sha_then="1" * 64,
        sha_now="2" * 64,
        num_documents=2,
        kept_then=("a", "b"),
        kept_now=kept_now,
        prompt_tokens_then=90,
        prompt_tokens_now=tokens,
        is_prompt_same=tokens == 90,
        setting_changes=changes,
        gateway_changes=(),
        notes=(),
        choices=pairs,
    )


THEN = side((1, 2, 3, 4), (1.0, 3.0, 2.0, 2.0))  # mean 2, tau 1
SAME = alternative("same")
EQUAL = alternative("equal", pair(THEN, THEN))
LATE = alternative("late", pair(THEN, side((1, 2, 3, 9), (1.0, 3.0, 2.0, 4.0))))  # mean 2.5, tau 1
EARLY = alternative(
    "early", pair(THEN, side((7, 8), (4.0, 2.0))), kept_now=("a",), tokens=60
)  # mean 3, tau 2, two tokens fewer
RESULTS: list[Alternative | str] = [
    SAME,
    "it was cancelled",
    EQUAL,
    LATE,
    EARLY,
    "it was cancelled",
    "its text was not kept (none)",
]


def test_turns_are_counted_by_what_changes_and_by_why_not() -> None:
    batch = summarise(RESULTS, "2" * 64)
    assert (batch.num_turns, dict(batch.skipped)) == (
        7,
        {"it was cancelled": 2, "its text was not kept (none)": 1},
    )
    assert (batch.answers.num_hits, batch.answers.num_trials) == (2, 4)
    assert (batch.num_documents_changed, batch.num_prompts_changed) == (1, 1)
    assert (batch.num_settings_changed, batch.num_decoded) == (3, 3)
    assert not batch.changes_nothing


def test_differences_are_means_over_all_that_were_replayed() -> None:
    batch = summarise(RESULTS, "2" * 64)
    assert batch.mean_prompt_tokens == pytest.approx(-30 / 4)
    assert batch.mean_completion_tokens == pytest.approx(-2 / 4)
    assert batch.mean_entropy_nats == pytest.approx((0.5 + 1.0) / 4)
    assert batch.mean_entropic_time_nats == pytest.approx(1.0 / 4)


def test_what_parts_first_changes_most() -> None:
    batch = summarise(RESULTS, "2" * 64)
    assert [(each.turn_id, each.first_step) for each in batch.most_changed] == [("early", 0), ("late", 3)]
    assert [each.kept_share for each in batch.most_changed] == [0.0, 0.75]


def test_turns_that_are_the_same_change_nothing() -> None:
    assert summarise([SAME, EQUAL], "2" * 64).changes_nothing


def test_an_answer_that_goes_on_parts_where_the_other_ends() -> None:
    longer = side((1, 2, 3, 4, 5), (1.0,) * 5)
    assert first_divergence(THEN, longer) == 4
    assert first_divergence(longer, THEN) == 4
    assert first_divergence(THEN, THEN) is None


def test_the_model_of_most_turns_is_replayed() -> None:
    rows = [TurnSummaryRow(str(number), f"turn-{number}", model=model) for number, model in enumerate("aba")]
    assert most_common_model(rows) == "a"


def test_the_report_has_share_interval_reasons_and_ids() -> None:
    batch = summarise(RESULTS, "2" * 64)
    console = Console(width=100, record=True, file=io.StringIO())
    print_batch(console, batch)
    text = console.export_text()
    assert "answers that change: 2 of 4, 50.0% (95 % interval 15.0% to 85.0%)" in text
    assert "2 not replayed: it was cancelled" in text
    assert "early  parts at step 0" in text
    written = json.loads(json.dumps(as_json(batch)))
    assert (written["changed_share"], written["changes_nothing"]) == (0.5, False)
