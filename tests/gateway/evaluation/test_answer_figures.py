"""Rates, differences and the ratio of processor time, worked out by hand."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from gateway.evaluation.answer_figures import Answered, summarize_answers
from gateway.evaluation.answer_report import answers_as_json, print_answers
from gateway.evaluation.answer_results import AnswerRecord, Header
from gateway.evaluation.arms import ARMS, Arm
from gateway.lab.labelled import LabelledDocument, LabelledRequest

HEADER = Header("model", "fp32", 1024, 32, "{question}", "Answer.", "{text}", "abc")


def answered(name: str, of_set: str, right: set[Arm], all_cpu_s: float, ours_cpu_s: float) -> Answered:
    """A request whose answer is right in the arms of ``right`` alone."""
    request = LabelledRequest(
        name, of_set, "Which colour?", (LabelledDocument("d", "It is blue."),), ("blue",)
    )
    records = {
        arm: AnswerRecord(
            request_id=name,
            arm=arm,
            text="Blue." if arm in right else "Red.",
            num_documents=1,
            num_left_out=2 if arm == "all" and of_set == "long" else 0,
            prompt_tokens=100,
            completion_tokens=3,
            ttft_s=0.5,
            total_s=1.0,
            worker_cpu_s=all_cpu_s if arm == "all" else ours_cpu_s - 0.25,
            choose_cpu_s=0.0 if arm == "all" else 0.25,
        )
        for arm in ARMS
    }
    return Answered(request, records)


ANSWERED = (
    answered("a", "short", {"all", "ours", "top_5", "relevant"}, 4.0, 1.0),
    answered("b", "short", {"ours", "relevant"}, 4.0, 2.0),
    answered("c", "long", {"ours", "top_5", "relevant"}, 8.0, 1.0),
    answered("d", "long", {"all"}, 4.0, 1.0),
)


def test_rates_and_means_are_those_of_the_requests() -> None:
    figures = summarize_answers(ANSWERED, 0)
    rates = {arm: found.answer_rate.mean for arm, found in figures.arms.items()}
    assert rates == {"all": 0.5, "ours": 0.75, "top_5": 0.5, "none": 0.0, "relevant": 0.75}
    assert figures.arms["all"].cpu_s == 5.0
    assert figures.arms["ours"].cpu_s == 1.25
    assert figures.arms["ours"].choose_cpu_s == 0.25
    assert figures.arms["all"].num_truncated == 2
    assert figures.arms["ours"].num_truncated == 0


def test_ours_is_compared_request_by_request() -> None:
    figures = summarize_answers(ANSWERED, 0)
    differences = {rival: found.mean for rival, found in figures.differences.items()}
    assert differences == {"all": 0.25, "top_5": 0.25, "none": 0.75}
    # a is even, b and c are won, d is lost. The mean of four draws from 0, 1, 1, -1 is below -0.5 in 5 of 256
    # cases, which is under 2.5 %, at -0.5 in 14 more; and it is at 1 in 16 of 256, over 2.5 %.
    assert figures.differences["all"].low == -0.5
    assert figures.differences["all"].high == 1.0
    assert figures.cpu_ratio.mean == pytest.approx(5.0 / 20.0)
    assert 1 / 8 <= figures.cpu_ratio.low < 0.25 < figures.cpu_ratio.high <= 2 / 4


def test_sets_are_counted_apart() -> None:
    sets = summarize_answers(ANSWERED, 0).sets
    assert {name: found.num_requests for name, found in sets.items()} == {"long": 2, "short": 2}
    assert sets["short"].answer_rate == {"all": 0.5, "ours": 1.0, "top_5": 0.5, "none": 0.0, "relevant": 1.0}
    assert sets["long"].differences["all"].mean == 0.0


def test_a_seed_gives_the_same_intervals_again() -> None:
    assert summarize_answers(ANSWERED, 3) == summarize_answers(ANSWERED, 3)


def test_programs_find_the_figures_by_name() -> None:
    written = answers_as_json(summarize_answers(ANSWERED, 0), HEADER, 0)
    assert written["arms"]["ours"]["answer_rate"] == 0.75
    assert written["arms"]["ours"]["interval"] == [0.25, 1.0]
    assert {"prompt_tokens", "ttft_s", "total_s", "cpu_s"} <= set(written["arms"]["none"])
    assert written["differences"]["ours_minus_all"]["mean"] == 0.25
    assert written["differences"]["ours_minus_all"]["excludes_zero"] is False
    assert written["cpu_ratio"]["ours_to_all"]["mean"] == pytest.approx(0.25)
    assert written["sets"]["long"]["answer_rate"]["ours"] == 0.5
    assert (written["num_requests"], written["num_truncated"], written["model"]) == (4, 2, "model")
    assert written["prompt"]["question"] == "{question}"


def test_people_read_them_on_80_columns() -> None:
    console = Console(width=80, record=True, file=io.StringIO())
    print_answers(console, summarize_answers(ANSWERED, 0), HEADER)
    printed = console.export_text()
    assert max(map(len, printed.splitlines())) <= 80
    rows = {line.split()[0]: line.split() for line in printed.splitlines() if line.strip()}
    assert rows["ours"][1:4] == ["0.750", "0.250-1.000", "1.0"]
    assert rows["long"][1:7] == ["2", "0.500", "0.500", "0.500", "0.000", "0.500"]
    assert "answer rate, ours - all: +0.250 [-0.500, +1.000], may be 0" in printed
    assert "CPU time, ours / all: 0.250 [" in printed
    assert "in 2 requests not all chunks fit the context of 1024 tokens" in printed.replace("\n", " ")
