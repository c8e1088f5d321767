"""What is said first: whole sentences, as a team would get them."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

from gateway.lab.analysis import analyse
from gateway.lab.intervals import Interval
from gateway.lab.metrics import METRICS
from gateway.lab.wording import bounds, counted, difference_words, listed, mean_words, metric_name
from gateway.store.document import Arm, Guardrail
from tests.gateway.lab.experiments import TTFT, Seen, document, simulated


def test_better_is_said_in_the_words_of_the_metric_with_both_sizes() -> None:
    report = analyse(document(), simulated(400, -0.2).observations())
    difference = report.metrics[0].comparisons[0].difference
    control = report.metrics[0].arms[1].mean.mean
    shown = f"{-difference.mean:.3f} s shorter [{-difference.high:.3f}, {-difference.low:.3f}]"
    share = f"{-difference.mean / control:.0%} of control's {control:.{2 if control >= 1 else 3}f} s"
    assert report.verdict.kind == "better"
    assert report.verdict.text == (
        f"treatment is better: time to first token {shown}, {share}; 200 and 200 units"
    )


def test_worse_is_worse_and_a_direction_may_be_turned_round() -> None:
    seen = simulated(400, 0.2).observations()
    assert analyse(document(), seen).verdict.text.startswith("treatment is worse: time to first token 0.")
    turned = analyse(document(primary_better="higher"), seen).verdict
    assert (turned.kind, "longer" in turned.text) == ("better", True)


def test_too_few_units_are_named() -> None:
    report = analyse(document(), simulated(30, -0.2).observations())
    assert report.verdict.text == (
        "not decided yet: treatment and control have 15 and 15 units with time to first token; "
        "it takes 20 in each that are not all alike"
    )


def test_an_undecided_experiment_says_how_many_more_units_would_show_it() -> None:
    report = analyse(document(), simulated(200, -0.05, seed=2).observations())
    assert report.verdict.kind == "undecided"
    assert report.verdict.text.startswith("not decided yet: time to first token 0.")
    comparison = report.metrics[0].comparisons[0]
    numbers = re.search(
        r"about ([\d,]+) more units in treatment and ([\d,]+) in control", report.verdict.text
    )
    assert numbers is not None
    for number in numbers.groups():
        more = (comparison.units_needed - 200) / 2
        assert int(number.replace(",", "")) == pytest.approx(more, rel=0.1, abs=1.0)


def test_a_difference_of_nothing_is_not_forecast() -> None:
    seen = Seen()
    for number in range(80):
        seen.unit(f"unit-{number}", ("treatment", "control")[number % 2], {TTFT: 1.0 + number // 2 % 5})
    text = analyse(document(), seen.observations()).verdict.text
    assert text.endswith("a difference as small as this one would not show in a hundred times as many units")


def test_a_broken_guardrail_says_stop_and_after_it_stopped() -> None:
    rail = Guardrail(metric=TTFT, better="lower", margin=0.05)
    seen = simulated(400, 0.3).observations()
    report = analyse(document(guardrails=(rail,)), seen)
    assert report.verdict.kind == "stopped"
    assert report.verdict.text == f"stop: {report.guardrails[0].sentence}"
    assert report.guardrails[0].sentence.startswith("treatment breaks a guardrail: time to first token is 0.")
    assert report.guardrails[0].sentence.endswith("] than in control, and 0.05 s is allowed")
    ended = analyse(document(guardrails=(rail,), is_active=False), seen)
    assert ended.verdict.text == f"stopped: {report.guardrails[0].sentence}"


def test_a_guardrail_that_only_reports_stops_nothing() -> None:
    rail = Guardrail(metric=TTFT, better="lower", margin=0.05, action="report")
    report = analyse(document(guardrails=(rail,)), simulated(400, 0.3).observations())
    assert report.verdict.kind == "worse"
    assert report.guardrails[0].sentence in report.verdict.text


def test_an_experiment_that_was_ended_says_what_it_found() -> None:
    report = analyse(document(is_active=False), simulated(400, -0.2).observations())
    assert report.verdict.kind == "stopped"
    assert report.verdict.text.startswith("stopped; so far treatment is better: time to first token 0.")


def test_one_arm_has_nothing_to_be_compared_with() -> None:
    report = analyse(
        document(arms=(Arm(name="all", start=0.0),)), simulated(60, 0.0, arms=("all",)).observations()
    )
    assert report.verdict.text == "not decided: there is one arm, and nothing to compare it with"
    assert report.alpha == 0.05


def test_of_several_arms_each_is_spoken_of() -> None:
    arms = (Arm(name="a", start=0.0), Arm(name="b", start=0.4), Arm(name="control", start=0.8))
    seen = simulated(800, -0.2, arms=("a", "b", "a", "b", "control"))
    verdict = analyse(document(arms=arms), seen.observations()).verdict
    assert verdict.kind == "better"
    assert verdict.text.count(" is better: ") == 2


def test_a_share_is_spoken_of_in_percentage_points() -> None:
    words = difference_words(METRICS["error"], Interval(0.0213, 0.0102, 0.0324))
    assert words == "2.1 percentage points higher [1.0, 3.2]"
    assert mean_words(METRICS["error"], 0.05) == "5.00 %"


def test_an_interval_on_both_sides_keeps_the_direction_that_is_named() -> None:
    words = difference_words(METRICS["completion_tokens"], Interval(-3.0, -11.0, 5.0))
    assert words == "3.0 tokens fewer [-5.0, 11.0]"
    unknown = difference_words(METRICS["latency_s"], Interval(-0.0213, -math.inf, math.inf))
    assert unknown == "0.0213 s shorter [not known yet]"


def test_names_and_numbers_are_words() -> None:
    names = [metric_name(name) for name in ("latency_s", "mean_entropy_nats", "rep_4", "feedback:ease")]
    assert names == ["latency", "mean entropy", "rep-4", "feedback 'ease'"]
    assert [counted(1, "unit"), counted(1_200, "unit")] == ["1 unit", "1,200 units"]
    assert [listed(["a"]), listed(["a", "b"]), listed(["a", "b", "c"])] == ["a", "a and b", "a, b and c"]
    assert bounds(METRICS["latency_s"], 0.0, float(np.float64(250.0))) == "[0, 250]"
