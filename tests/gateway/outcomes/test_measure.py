"""What is measured of a turn, against values worked out by hand."""

from __future__ import annotations

import pytest

from gateway.flow.turn import Outcome
from gateway.lab.metrics import METRICS
from gateway.outcomes.measure import measured, measured_text

WHOLE = Outcome(
    finish_reasons=("stop",),
    prompt_tokens=30,
    completion_tokens=12,
    time_to_first_token_s=0.25,
    latency_s=1.5,
    mean_entropy_nats=0.75,
    entropic_time_nats=2.5,
)


def test_a_whole_answer_has_every_metric_that_is_not_of_its_text() -> None:
    assert measured(WHOLE) == {
        "error": 0.0,
        "cancelled": 0.0,
        "latency_s": 1.5,
        "time_to_first_token_s": 0.25,
        "prompt_tokens": 30.0,
        "completion_tokens": 12.0,
        "cut_off": 0.0,
        "mean_entropy_nats": 0.75,
        "entropic_time_nats": 2.5,
    }


def test_all_names_are_metrics_and_no_metric_is_forgotten() -> None:
    assert {*measured(WHOLE), *measured_text("one"), "theme_relevance"} == METRICS.keys()


def test_a_quick_failure_is_an_error_and_not_a_fast_answer() -> None:
    assert measured(Outcome(status="error", error_code="upstream_error", latency_s=0.01)) == {
        "error": 1.0,
        "cancelled": 0.0,
    }


def test_a_client_that_left_has_seen_its_first_token() -> None:
    left = Outcome(status="cancelled", latency_s=0.4, time_to_first_token_s=0.1)
    assert measured(left) == {"error": 0.0, "cancelled": 1.0, "time_to_first_token_s": 0.1}


def test_what_a_worker_does_not_tell_is_not_zero() -> None:
    assert measured(Outcome(latency_s=2.0, finish_reasons=("length",))) == {
        "error": 0.0,
        "cancelled": 0.0,
        "latency_s": 2.0,
        "cut_off": 1.0,
    }


@pytest.mark.parametrize(
    ("text", "num_words", "rep_4"),
    [
        # a b c d | b c d e | c d e a | d e a b | e a b c | a b c d | b c d e: 7 4-grams, 5 of them distinct
        ("One two three four five one two three four five", 10, 2 / 7),
        ("the ferry leaves at seven", 5, 0.0),
        ("no no no no no no", 6, 2 / 3),
        ("Well.", 1, 0.0),
        ("", 0, 0.0),
        ("渡船七点", 4, 0.0),
    ],
)
def test_words_are_counted_and_repetitions_are_a_share_of_the_4_grams(
    text: str, num_words: int, rep_4: float
) -> None:
    assert measured_text(text) == {"answer_words": num_words, "rep_4": pytest.approx(rep_4)}
