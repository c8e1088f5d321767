"""The analysis of an experiment: four units by hand, what counts, what does not, what is adjusted."""

from __future__ import annotations

import json
import math
from collections import defaultdict

import numpy as np
import pytest
from scipy import stats  # type: ignore[import-untyped]

from gateway.lab.analysis import analyse
from gateway.lab.findings import MetricFindings, report_json
from gateway.lab.observations import ObservedTurn
from gateway.store.document import Arm, Guardrail
from tests.gateway.lab.experiments import TTFT, Seen, document, simulated

ERROR = Guardrail(metric="error", better="lower", margin=0.02)


def four_units() -> Seen:
    seen = Seen()
    seen.unit("a", "treatment", {TTFT: 1.0, "error": 0.0}, {TTFT: 3.0, "error": 0.0})
    seen.unit("b", "control", {TTFT: 4.0, "error": 0.0})
    seen.unit("c", "treatment", {TTFT: 5.0, "error": 0.0}, {"error": 1.0})
    seen.unit("d", "control", {TTFT: 7.0, "error": 0.0}, {TTFT: 9.0, "error": 0.0}, {TTFT: 8.0, "error": 0.0})
    return seen


def found(report_metrics: tuple[MetricFindings, ...], name: str = TTFT) -> MetricFindings:
    return next(each for each in report_metrics if each.metric.name == name)


def test_four_units_by_hand() -> None:
    report = analyse(document(), four_units().observations())
    first = report.metrics[0]
    assert first.metric.name == TTFT
    treatment, control = first.arms
    # Units: a 2, c 5; b 4, d 8. A unit counts once, however many turns it has.
    assert (treatment.num_units, treatment.num_turns, treatment.mean.mean) == (2, 3, 3.5)
    assert (control.num_units, control.num_turns, control.mean.mean) == (2, 4, 6.0)
    (comparison,) = first.comparisons
    assert comparison.difference.mean == -2.5
    assert comparison.relative == pytest.approx(-2.5 / 6)
    assert comparison.difference.high == math.inf  # four units say nothing
    assert report.verdict.kind == "undecided"


def test_what_an_error_has_taken_away_is_said() -> None:
    report = analyse(document(), four_units().observations())
    treatment, control = report.metrics[0].arms
    assert (treatment.num_missing, treatment.num_unfinished) == (1, 1)
    assert (control.num_missing, control.num_unfinished) == (0, 0)
    assert report.notes[0].startswith(
        "1 of 4 turns of treatment and 0 of 4 turns of control have no time to first token, as they ended in"
    )
    seen = four_units()
    seen.turn("b", "control", 300.0, {"error": 0.0, "cancelled": 1.0})
    seen.turn("b", "control", 300.0, {"error": 0.0})  # without the metric for another reason
    (_, control) = analyse(document(), seen.observations()).metrics[0].arms
    assert (control.num_missing, control.num_unfinished) == (2, 1)
    errors = found(report.metrics, "error")
    assert [arm.mean.mean for arm in errors.arms] == [0.25, 0.0]  # c: 1 of its 2 turns


def test_the_interval_is_that_of_the_units_means() -> None:
    seen = simulated(300, -0.1)
    (comparison,) = found(analyse(document(), seen.observations()).metrics).comparisons
    units: dict[str, list[float]] = defaultdict(list)
    for turn in seen.turns:
        units[turn.unit].append(turn.values[TTFT])
    means = {
        arm: [np.mean(values) for unit, values in units.items() if seen.exposures[unit].arm == arm]
        for arm in ("treatment", "control")
    }
    welch = stats.ttest_ind(means["treatment"], means["control"], equal_var=False)
    assert comparison.difference.mean == pytest.approx(
        np.mean(means["treatment"]) - np.mean(means["control"])
    )
    fixed = welch.confidence_interval(0.95)
    width = comparison.difference.high - comparison.difference.low
    assert 1.5 < width / (fixed.high - fixed.low) < 1.8  # 3.0 to 3.1 standard errors for 1.97
    assert comparison.cuped is None


def test_the_period_before_narrows_the_interval() -> None:
    seen = simulated(400, -0.05, seed=3)
    plain = found(analyse(document(), seen.observations()).metrics).comparisons[0]
    own: dict[str, list[float]] = defaultdict(list)
    for turn in seen.turns:
        own[turn.unit].append(turn.values[TTFT])
    random = np.random.default_rng(4)
    for unit, exposed in seen.exposures.items():
        before = float(np.mean(own[unit])) + (0.05 if exposed.arm == "treatment" else 0.0)
        seen.turn(unit, "", exposed.at - 10.0, {TTFT: before + random.normal(0.0, 0.05)})
    adjusted = found(analyse(document(), seen.observations()).metrics).comparisons[0]
    assert adjusted.cuped is not None
    assert adjusted.cuped.num_units == 400
    kept = 1.0 - adjusted.cuped.variance_reduction
    assert kept < 0.2
    width, before_it = (each.difference.high - each.difference.low for each in (adjusted, plain))
    assert width / before_it == pytest.approx(math.sqrt(kept), rel=0.1)
    assert adjusted.difference.low < -0.05 < adjusted.difference.high


def test_turns_without_an_arm_after_the_exposure_are_no_period_before() -> None:
    seen = simulated(200, 0.0)
    for unit, exposed in list(seen.exposures.items()):
        seen.turn(unit, "", exposed.at + 10.0, {TTFT: 9.0})
    report = analyse(document(), seen.observations())
    assert report.exclusions.num_left_turns == 200
    assert found(report.metrics).comparisons[0].cuped is None
    assert found(report.metrics) == found(analyse(document(), simulated(200, 0.0).observations()).metrics)


def test_what_does_not_count_is_counted() -> None:
    seen = four_units()
    seen.unit("e", "elsewhere", {TTFT: 99.0})
    seen.unit("f", "control")
    seen.unit("g", "treatment", {TTFT: 99.0})
    seen.turn("g", "control", 200.0, {TTFT: 99.0})
    seen.unit("h", "control", {TTFT: 99.0})
    seen.turn("nobody", "control", 200.0, {TTFT: 99.0})
    seen.turn("a", "control", 200.0, {TTFT: 99.0}, shadow_of="gone")
    report = analyse(
        document(),
        seen.observations(moved_units=frozenset({"h"}), num_damaged=3, num_unknown_feedback=1),
    )
    assert [arm.mean.mean for arm in report.metrics[0].arms] == [3.5, 6.0]
    excluded = report.exclusions
    assert (excluded.num_foreign_units, excluded.num_silent_units, excluded.num_moved_units) == (1, 1, 2)
    assert (excluded.num_unexposed_turns, excluded.num_unpaired_shadows) == (1, 1)
    assert (excluded.num_damaged, excluded.num_unknown_feedback) == (3, 1)
    assert dict(report.sample_ratio.counts) == {"treatment": 2, "control": 3}
    assert any(note.startswith("3 entries could not be read") for note in report.notes)
    assert any(note.startswith("2 units seen in two arms") for note in report.notes)


def test_turns_are_compared_with_their_shadows_in_pairs() -> None:
    seen = Seen()
    random = np.random.default_rng(1)
    differences = []
    for number in range(40):
        hard = random.normal(5.0, 3.0)
        seen.unit(f"unit-{number}", "treatment", {TTFT: hard})
        gain = random.normal(0.5, 0.1)
        differences.append(-gain)
        seen.turn(f"unit-{number}", "control", 200.0, {TTFT: hard + gain}, shadow_of=seen.turns[-1].id)
    report = analyse(document(), seen.observations())
    (pair,) = report.shadows
    assert (pair.arm, pair.num_units, pair.num_pairs) == ("treatment", 40, 40)
    assert pair.difference.mean == pytest.approx(np.mean(differences))
    error = np.std(differences, ddof=1) / math.sqrt(40)
    assert 3.0 < (pair.difference.high - pair.difference.mean) / error < 6.0
    assert report.metrics[0].arms[0].mean.mean == pytest.approx(
        np.mean([turn.values[TTFT] for turn in seen.turns if not turn.shadow_of])
    )


def test_sizes_that_do_not_fit_hide_verdict_and_differences_but_no_guardrail() -> None:
    seen = simulated(600, 0.5)
    for unit in [unit for unit, exposed in seen.exposures.items() if exposed.arm == "treatment"][:100]:
        del seen.exposures[unit]
    rail = Guardrail(metric=TTFT, better="lower", margin=0.1)
    report = analyse(document(guardrails=(rail,)), seen.observations())
    assert dict(report.sample_ratio.counts) == {"treatment": 200, "control": 300}
    assert report.sample_ratio.p_value == pytest.approx(stats.chisquare([200, 300]).pvalue)
    assert report.verdict.kind == "hidden"
    assert report.verdict.text.startswith("hidden: the arms' sizes do not fit their shares (200 in treatment")
    assert all(not each.comparisons for each in report.metrics)
    assert report.guardrails[0].is_broken
    assert report.guardrails[0].sentence in report.verdict.text


@pytest.mark.parametrize(
    ("effect", "margin", "is_broken"),
    [(0.5, 0.1, True), (0.5, 0.6, False), (0.0, 0.1, False), (-0.5, 0.1, False)],
)
def test_a_guardrail_breaks_where_the_whole_interval_is_beyond_the_margin(
    effect: float, margin: float, is_broken: bool
) -> None:
    rail = Guardrail(metric=TTFT, better="lower", margin=margin)
    report = analyse(document(guardrails=(rail,)), simulated(400, effect).observations())
    (state,) = report.guardrails
    assert (state.guardrail, state.arm, state.is_broken) == (rail, "treatment", is_broken)
    assert state.is_broken == (state.difference.low > margin)
    assert state.difference.mean == pytest.approx(effect, abs=0.1)


def test_a_guardrail_where_more_is_better_breaks_downwards() -> None:
    seen = Seen()
    for number in range(200):
        arm = ("treatment", "control")[number % 2]
        is_useful = (number // 2 % 10 == 0) == (arm == "treatment")  # of 10: 1 and 9
        seen.unit(f"unit-{number}", arm, {"feedback:useful": float(is_useful)})
    rails = [
        Guardrail(metric="feedback:useful", better="higher", margin=0.1),
        Guardrail(metric="feedback:useful", better="higher", margin=0.75),
        Guardrail(metric="feedback:useful", better="lower"),
    ]
    report = analyse(document(guardrails=tuple(rails)), seen.observations())
    assert [state.is_broken for state in report.guardrails] == [True, False, False]
    assert all(state.difference.mean == pytest.approx(-0.8) for state in report.guardrails)


def test_a_guardrail_without_data_is_not_broken_and_says_so() -> None:
    (state,) = analyse(document(guardrails=(ERROR,)), simulated(60, 0.0).observations()).guardrails
    assert not state.is_broken
    assert math.isnan(state.difference.mean)
    assert "there is no share of errors in both arms yet" in state.sentence


def test_no_error_in_either_arm_is_no_certainty() -> None:
    seen = Seen()
    for number in range(60):
        seen.unit(f"unit-{number}", ("treatment", "control")[number % 2], {"error": 0.0})
    (state,) = analyse(document(guardrails=(ERROR,)), seen.observations()).guardrails
    assert state.difference.mean == 0.0
    assert 0.1 < state.difference.high < 0.4  # 30 units without one: 3 / 30 already at one look
    assert not state.is_broken


def test_an_arm_that_only_repeats_itself_breaks_its_guardrail_though_nothing_varies() -> None:
    rail = Guardrail(metric="rep_4", better="lower", margin=0.05)
    seen = Seen()
    for number in range(60):
        arm = ("treatment", "control")[number % 2]
        seen.unit(f"unit-{number}", arm, {"rep_4": 12 / 13 if arm == "treatment" else 0.0})
    (state,) = analyse(document(guardrails=(rail,)), seen.observations()).guardrails
    assert state.difference.mean == pytest.approx(12 / 13)
    assert state.difference.low < 0.8  # 30 units that are alike are no certainty
    assert state.is_broken


def test_seconds_that_never_vary_say_nothing() -> None:
    seen = Seen()
    for number in range(60):
        arm = ("treatment", "control")[number % 2]
        seen.unit(f"unit-{number}", arm, {TTFT: 1.0 if arm == "treatment" else 0.0})
    report = analyse(document(), seen.observations())
    assert report.metrics[0].comparisons[0].difference.low == -math.inf
    assert report.verdict.text.endswith("it takes 20 in each that are not all alike")


def test_several_arms_are_each_compared_with_the_control_at_a_corrected_level() -> None:
    arms = (Arm(name="a", start=0.0), Arm(name="b", start=0.3), Arm(name="control", start=0.6))
    names = ("a", "b", "a", "b", "a", "b", "control", "control", "control", "control")
    seen = simulated(600, 0.0, arms=names)
    report = analyse(document(arms=arms), seen.observations())
    assert report.alpha == pytest.approx(0.025)
    assert [each.arm for each in report.metrics[0].comparisons] == ["a", "b"]
    two = document(arms=(Arm(name="a", start=0.0), Arm(name="control", start=0.4)))
    alone = found(analyse(two, seen.observations()).metrics).comparisons[0]
    both = report.metrics[0].comparisons[0]
    assert both.difference.mean == pytest.approx(alone.difference.mean)
    assert both.difference.high > alone.difference.high
    assert any("each interval is at 97.5%" in note for note in report.notes)


def test_the_primary_metric_comes_first_then_guardrails_then_the_rest() -> None:
    seen = Seen()
    seen.unit("a", "treatment", {"latency_s": 1.0, "error": 0.0, "feedback:zeal": 1.0, "feedback:ease": 2.0})
    seen.unit("b", "control", {"latency_s": 1.0, "error": 0.0, "rep_4": 0.1, "of_another_version": 3.0})
    report = analyse(document(primary_metric="rep_4", guardrails=(ERROR,)), seen.observations())
    names = [each.metric.name for each in report.metrics]
    assert names == ["rep_4", "error", "latency_s", "feedback:ease", "feedback:zeal", "of_another_version"]


def test_the_report_is_json_with_null_for_what_is_not_known() -> None:
    report = analyse(document(guardrails=(ERROR,)), four_units().observations())
    written = json.loads(report_json(report))
    assert written["verdict"]["kind"] == "undecided"
    assert written["metrics"][0]["comparisons"][0]["difference"] == {"mean": -2.5, "low": None, "high": None}
    assert written["guardrails"][0]["guardrail"]["metric"] == "error"
    assert written["sample_ratio"]["counts"] == {"treatment": 2, "control": 2}


def test_nothing_observed_is_nothing_found() -> None:
    report = analyse(document(guardrails=(ERROR,)), Seen().observations())
    assert report.metrics == ()
    assert report.verdict.text == "not decided yet: no turn has time to first token yet"


def test_a_unit_and_its_turns_may_come_in_any_order() -> None:
    seen = simulated(100, 0.1)
    shuffled = Seen(dict(reversed(seen.exposures.items())), list(reversed(seen.turns)))
    assert isinstance(shuffled.turns[0], ObservedTurn)
    ours, theirs = (analyse(document(), each.observations()) for each in (seen, shuffled))
    (a,), (b,) = ours.metrics[0].comparisons, theirs.metrics[0].comparisons
    assert a.difference.low == pytest.approx(b.difference.low, rel=1e-9)
