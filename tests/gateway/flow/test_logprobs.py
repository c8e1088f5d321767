"""Foreign servers' log-probabilities: what is read of them, and what a client gets."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.flow.logprobs import SILENT, Seen, cut, seen_tokens
from gateway.lab.entropy_bounds import UNKNOWN


def chat(*tokens: tuple[float, list[float]]) -> dict[str, Any]:
    content = [
        {
            "token": "t",
            "logprob": own,
            "bytes": [116],
            "top_logprobs": [{"token": "u", "logprob": top} for top in tops],
        }
        for own, tops in tokens
    ]
    return {"content": content, "refusal": None}


def test_chat_logprobs_are_read_token_by_token() -> None:
    seen = list(seen_tokens(chat((-0.5, [-0.5, -2.0]), (-3.0, [-0.1, -2.5])), 2))
    assert seen == [Seen(-0.5, [-0.5, -2.0], -2.0), Seen(-3.0, [-0.1, -2.5], -2.5)]


def test_the_chosen_token_put_beside_the_likeliest_says_nothing_of_those_hidden() -> None:
    assert list(seen_tokens(chat((-9.0, [-0.5, -2.0, -9.0])), 2)) == [Seen(-9.0, [-0.5, -2.0], -2.0)]


def test_text_completions_are_read_by_their_shape() -> None:
    logprobs = {
        "tokens": ["a", "b", "c"],
        "token_logprobs": [-0.5, -9.0, -0.1],
        "top_logprobs": [{"a": -0.5, "x": -2.0}, {"x": -0.4, "y": -1.0, "b": -9.0}, {"c": -0.1}],
        "text_offset": [0, 1, 2],
    }
    assert list(seen_tokens(logprobs, 2)) == [
        Seen(-0.5, [-0.5, -2.0], -2.0),
        Seen(-9.0, [-0.4, -1.0], -1.0),
        Seen(-0.1, [-0.1], UNKNOWN),  # two were asked for: texts that are equal have become one
    ]


@pytest.mark.parametrize(
    "logprobs",
    [
        *(None, [], "x", {}, {"content": None}, {"content": [3, {}, {"logprob": -1.0}]}),
        {"content": [{"logprob": -1.0, "top_logprobs": []}]},
        {"content": [{"logprob": -1.0, "top_logprobs": [{"logprob": "x"}]}]},
        {"content": [{"logprob": -1.0, "top_logprobs": ["x"]}]},
        {"top_logprobs": [None, {}, {"a": "x"}], "token_logprobs": [None, -1.0]},
        {"top_logprobs": [{"a": -1.0}]},
    ],
)
def test_what_has_no_shape_that_is_known_is_passed_over(logprobs: object) -> None:
    assert list(seen_tokens(logprobs, 2)) == []
    assert cut(logprobs, SILENT) is None


def test_a_client_that_asked_for_none_gets_null() -> None:
    assert cut(chat((-0.5, [-0.5])), SILENT) is None


@pytest.mark.parametrize(("num_top", "expected"), [(0, []), (1, [-0.5]), (5, [-0.5, -2.0, -3.0])])
def test_a_client_gets_as_many_of_a_chat_as_it_asked_for(num_top: int, expected: list[float]) -> None:
    left: Any = cut(chat((-0.5, [-0.5, -2.0, -3.0])), num_top)
    assert [top["logprob"] for top in left["content"][0]["top_logprobs"]] == expected
    assert left["content"][0]["logprob"] == -0.5
    assert left["content"][0]["bytes"] == [116]


def test_a_client_of_text_completions_gets_its_number_and_the_chosen_token() -> None:
    logprobs = {
        "tokens": ["b"],
        "token_logprobs": [-9.0],
        "top_logprobs": [{"x": -2.0, "y": -0.4, "z": -3.0, "b": -9.0}],
        "text_offset": [0],
    }
    left: Any = cut(logprobs, 2)
    assert left["top_logprobs"] == [{"x": -2.0, "y": -0.4, "b": -9.0}]
    assert (left["tokens"], left["token_logprobs"], left["text_offset"]) == (["b"], [-9.0], [0])


def test_a_client_of_text_completions_that_asked_for_zero_gets_null_tops() -> None:
    left: Any = cut({"tokens": ["b"], "token_logprobs": [-9.0], "top_logprobs": [{"b": -9.0}]}, 0)
    assert left["top_logprobs"] is None
