"""What is wrong with a turn, from steps that are made up: each finding, and what only looks like it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from gateway.lab.diagnosis.case import Answer, Case, ContextFacts, Finding, SettingChange
from gateway.lab.diagnosis.diagnose import diagnose, patterns
from gateway.store.document import CalibrationSection
from worker.protocol import AdaptiveControls, DecodeControls, GravityControls, StepRecord, TemperatureControls

ADAPTIVE = AdaptiveControls(k_min=3, k_max=40, s_low=0.0, s_high=0.14, curve="geometric")
CALIBRATION = CalibrationSection(model="m", temperature=0.4, s_mean=0.03)
SURE = StepRecord(
    token_id=0,
    logprob=-0.1,
    entropy_nats=0.2,
    normalised_entropy=0.02,
    gravity=0.98,
    varentropy=0.1,
    p_max=0.95,
    k=4,
    p=0.9,
    temperature=0.4,
    bias_nats=0.0,
    entropy_after_nats=0.15,
    bucket=0,
    accepted_draft=0,
    engine_step=1,
    batch_size=1,
)


def steps(count: int, make: Callable[[int], dict[str, Any]] = lambda number: {}) -> tuple[StepRecord, ...]:
    """Steps of different tokens that nothing is wrong with, but for what ``make`` changes in each."""
    return tuple(replace(SURE, **{"token_id": number, **make(number)}) for number in range(count))


def case(made: Sequence[StepRecord] = (), **fields: Any) -> Case:
    """A healthy turn of a task that is calibrated at 0.4, but for what is given."""
    base = Case(
        turn_id="t",
        task="rag_qa",
        model="m",
        controls=DecodeControls(adaptive=ADAPTIVE, gravity=GravityControls(strength=1.2, keywords=("sea",))),
        temperature=0.4,
        max_tokens=256,
        answers=(Answer(0, tuple(made) or steps(40), "stop"),),
        calibration=CALIBRATION,
    )
    return replace(base, **fields)


def names(found: Sequence[Finding]) -> list[str]:
    return [finding.name for finding in found]


def only(found: Sequence[Finding]) -> Finding:
    [finding] = found
    return finding


def test_a_healthy_turn_has_no_finding() -> None:
    assert diagnose(case()) == ()


def test_k_at_its_floor_where_h_peaks_is_broken_text() -> None:
    peaks = steps(40, lambda n: {"entropy_nats": 3.0, "k": 3} if n in (7, 20, 30) else {})
    controls = DecodeControls(adaptive=ADAPTIVE.model_copy(update={"smoothing": 0.6}))
    finding = only(diagnose(case(peaks, controls=controls)))
    assert finding.name == "broken text"
    assert [place.step for place in finding.steps] == [7, 20, 30]
    # s stood above s_low there, so it is the smoothed mean that lags.
    assert finding.change == SettingChange("tasks.rag_qa.adaptive.smoothing", 0.6, 0.3)


def test_k_that_rises_with_h_is_not_broken_text() -> None:
    peaks = steps(40, lambda n: {"entropy_nats": 3.0, "k": 25} if n in (7, 20, 30) else {})
    assert diagnose(case(peaks)) == ()


def test_a_single_peak_at_the_floor_is_not_broken_text() -> None:
    assert diagnose(case(steps(40, lambda n: {"entropy_nats": 3.0, "k": 3} if n == 7 else {}))) == ()


def test_a_range_that_begins_too_high_is_named_by_its_low_end() -> None:
    peaks = steps(40, lambda n: {"entropy_nats": 3.0, "normalised_entropy": 0.28, "k": 3} if n > 30 else {})
    late = AdaptiveControls(k_min=3, k_max=40, s_low=0.3, s_high=0.6)
    finding = diagnose(case(peaks, controls=DecodeControls(adaptive=late)))[0]
    assert finding.change == SettingChange("tasks.rag_qa.adaptive.s_low", 0.3, 0.14)


def test_greedy_steps_are_never_starved_since_nothing_is_drawn() -> None:
    greedy = steps(40, lambda n: {"entropy_nats": 4.0, "k": 3, "temperature": 0.0})
    assert diagnose(case(greedy, temperature=0.0)) == ()


def test_h_high_for_long_with_k_at_its_largest_is_drift() -> None:
    wide = steps(60, lambda n: {"normalised_entropy": 0.3, "entropy_nats": 3.2, "k": 40} if n >= 20 else {})
    finding = only(diagnose(case(wide)))
    assert finding.name == "drift"
    assert finding.change == SettingChange("tasks.rag_qa.adaptive.k_max", 40, 20)
    assert finding.steps[-1].step == 59
    assert finding.weight == pytest.approx(mean_s(wide, finding) / 0.14)


def mean_s(made: Sequence[StepRecord], finding: Finding) -> float:
    values = [made[place.step].normalised_entropy for place in finding.steps]
    return sum(values) / len(values)


def test_drift_at_a_request_that_is_too_hot_is_cooled_first() -> None:
    wide = steps(40, lambda n: {"normalised_entropy": 0.3, "entropy_nats": 3.2, "k": 40, "temperature": 0.8})
    found = diagnose(case(wide, temperature=0.8, requested=frozenset({"temperature"})))
    assert names(found) == ["drift", "calibrated elsewhere"]
    assert found[0].change == found[1].change == SettingChange("request.temperature", 0.8, 0.4)


def test_ten_open_steps_are_no_drift() -> None:
    wide = steps(60, lambda n: {"normalised_entropy": 0.3, "k": 40} if 20 <= n < 30 else {})
    assert diagnose(case(wide)) == ()


def test_what_is_said_three_times_and_more_is_a_loop() -> None:
    looping = steps(60, lambda n: {"token_id": 100 + n if n < 10 else n % 5, "k": 3})
    finding = only(diagnose(case(looping)))
    assert finding.name == "loop"
    # Five 4-grams take turns from step 13 on; each is there twice by step 22.
    assert [place.step for place in finding.steps] == list(range(23, 60))
    assert "k was at its floor of 3 at 37 of them" in finding.sentence
    assert finding.change == SettingChange("request.frequency_penalty", None, 0.3)


def test_keys_that_come_back_with_other_values_are_no_loop() -> None:
    # As JSON has them: eight tokens that repeat, then four that do not.
    records = steps(96, lambda n: {"token_id": n % 12 if n % 12 < 8 else 1_000 + n})
    assert diagnose(case(records)) == ()


def test_a_sentence_that_is_quoted_once_is_no_loop() -> None:
    assert diagnose(case(steps(60, lambda n: {"token_id": n % 30}))) == ()


def test_a_loop_without_token_ids_cannot_be_seen() -> None:
    assert diagnose(case(steps(60, lambda n: {"token_id": -1}))) == ()


def test_tokens_that_the_pull_alone_brought_in_are_over_strong_gravity() -> None:
    pulled = {"bias_nats": 1.6, "logprob": math.log(0.3), "entropy_nats": 1.0, "entropy_after_nats": 0.1}
    made = steps(40, lambda n: pulled if n in (3, 9, 30) else {})
    finding = only(diagnose(case(made, controls=DecodeControls(gravity=GravityControls(strength=8.0)))))
    assert finding.name == "over-strong gravity"
    assert "H there fell from 1.00 to 0.10 nats" in finding.sentence
    assert finding.change == SettingChange("tasks.rag_qa.gravity_strength", 8.0, 1.5)


def test_pulled_tokens_that_the_model_wanted_anyway_are_not() -> None:
    made = steps(40, lambda n: {"bias_nats": 1.6, "logprob": math.log(0.9)})
    assert diagnose(case(made, controls=DecodeControls(gravity=GravityControls(strength=8.0)))) == ()


def test_a_nudge_is_not_over_strong() -> None:
    made = steps(40, lambda n: {"bias_nats": 0.24, "logprob": math.log(0.3)})
    assert diagnose(case(made)) == ()


def test_a_temperature_loop_that_stands_at_its_bound_is_named() -> None:
    stuck = steps(40, lambda n: {"temperature": 1.5 if n >= 10 else 0.4})
    controls = DecodeControls(temperature=TemperatureControls(mode="feedback", target_nats=4.0))
    finding = only(diagnose(case(stuck, controls=controls)))
    assert finding.name == "temperature loop at its bound"
    assert finding.change == SettingChange("tasks.rag_qa.temperature.target_nats", 4.0, 0.2)


def test_length_is_named_at_both_ends() -> None:
    cut = only(diagnose(case(answers=(Answer(0, steps(40), "length"),), max_tokens=40)))
    assert cut.change == SettingChange("tasks.rag_qa.sampling.max_tokens", 40, 80)
    assert names(diagnose(case(answers=(Answer(0, steps(1), "stop"),)))) == ["ended at once"]
    # Of another server's answers there are no steps.
    unseen = case(answers=(Answer(0, (), "stop"),), completion_tokens=30)
    assert diagnose(unseen) == ()


def context(**fields: Any) -> ContextFacts:
    healthy = ContextFacts(
        num_documents=6,
        num_kept=2,
        reasons={"on_theme": 2, "off_theme": 4},
        has_theme=True,
        tokens_before=900,
        tokens_after=300,
    )
    return replace(healthy, **fields)


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({}, []),
        ({"conflicts": ("a says 1, b says 2.",)}, ["conflicting context"]),
        ({"centres": (("a", "b"), ("c",))}, ["several centres"]),
        ({"num_kept": 0, "reasons": {"empty": 6}, "tokens_after": 0}, ["nothing kept"]),
        (
            {"reasons": {"best_available": 2, "off_theme": 4}, "has_theme": False},
            ["everything off the theme"],
        ),
        ({"has_theme": False}, ["question without a theme"]),
        ({"reasons": {"on_theme": 2, "over_budget": 4}, "token_budget": 300}, ["cut by the token budget"]),
        ({"reasons": {"on_theme": 6}, "num_kept": 6, "tokens_after": 900}, ["no speed gained"]),
        ({"reasons": {"unpruned": 6}, "num_kept": 6, "tokens_after": 900, "is_pruning": False}, []),
    ],
)
def test_the_context_is_looked_at(facts: dict[str, Any], expected: list[str]) -> None:
    assert names(diagnose(case(context=context(**facts)))) == expected


def test_the_order_is_the_one_in_which_one_looks() -> None:
    found = diagnose(
        case(
            answers=(Answer(0, steps(40, lambda n: {"batch_size": 30}), "length"),),
            context=context(conflicts=("a says 1, b says 2.",)),
            temperature=1.6,
            num_attempts=2,
            environment={"dtype": "bf16", "kv": {"slots": 32}, "versions": {"torch": "1", "numpy": "1"}},
            environment_now={"dtype": "fp32", "kv": {"slots": 8}, "versions": {"torch": "2", "numpy": "1"}},
        )
    )
    assert [finding.subject for finding in found] == sorted(
        [finding.subject for finding in found],
        key=["input", "sampling", "length", "environment", "framework"].index,
    )
    assert {"conflicting context", "temperature too high", "cut off", "environment changed"} < set(
        names(found)
    )
    assert names(found)[-2:] == ["retries", "full worker"]
    [changed] = [finding for finding in found if finding.name == "environment changed"]
    assert changed.sentence.endswith("dtype bf16 then, fp32 now; torch 1 then, 2 now.")


def test_what_the_request_set_is_changed_in_the_request() -> None:
    cut = case(answers=(Answer(0, steps(9), "length"),), max_tokens=9, requested=frozenset({"max_tokens"}))
    assert only(diagnose(cut)).change == SettingChange("request.max_tokens", 9, 18)
    nested = replace(cut, requested=frozenset({"gravity.adaptive.k_min", "gravity.gravity_strength"}))
    assert nested.path("adaptive.k_min") == "request.gravity.adaptive.k_min"
    assert nested.path("adaptive.k_max") == "tasks.rag_qa.adaptive.k_max"
    assert nested.path("gravity_strength") == "request.gravity.gravity_strength"


def test_many_turns_are_counted_with_the_worst_first() -> None:
    cut = [
        Finding("length", "cut off", f"{n}", change=SettingChange("p", 1, 2), weight=float(n))
        for n in range(5)
    ]
    theme = Finding("input", "several centres", "s", weight=2.0)
    diagnosed = [(f"t{n}", (cut[n],)) for n in range(4)] + [("t4", (theme, cut[4])), ("t5", ())]
    first, second = patterns(diagnosed)
    assert (first.name, first.num_turns, first.worst_turns, first.change) == (
        *("several centres", 1, ("t4",), None),
    )
    assert second.share == pytest.approx(5 / 6)
    assert (second.num_turns, second.worst_turns) == (5, ("t4", "t3", "t2"))
    assert second.change == SettingChange("p", 1, 2)


def test_the_clients_own_top_k_is_named_where_it_is_what_starves() -> None:
    tight = steps(40, lambda n: {"entropy_nats": 3.0, "k": 2} if n < 10 else {"k": 2})
    finding = only(diagnose(case(tight, top_k=2)))
    assert (finding.name, finding.change) == ("broken text", SettingChange("request.top_k", 2, 32))
    without = case(tight, top_k=2, controls=DecodeControls())
    assert only(diagnose(without)).change == SettingChange("request.top_k", 2, 32)
