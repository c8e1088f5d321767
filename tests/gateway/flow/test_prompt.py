"""A prompt's length and beginning, counted by hand."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.flow.prompt import affinity_text, prompt_beginning, prompt_chars
from tests.gateway.flow.conftest import MakeTurn

CHAT = {
    "messages": [
        {"role": "system", "content": "abc"},
        {"role": "user", "content": [{"type": "text", "text": "de"}, {"type": "image_url", "image_url": {}}]},
        {"role": "assistant", "content": None},
    ]
}


@pytest.mark.parametrize(
    ("body", "num_chars"),
    [
        (CHAT, len("system" + "abc" + "user" + "de" + "assistant")),
        ({"prompt": "hello"}, 5),
        ({"prompt": ["hello", "you"]}, 8),
        ({"prompt": [1, 2, 3]}, 3),
        ({"prompt": [[1, 2], [3]]}, 3),
        ({}, 0),
    ],
)
def test_the_length_is_of_all_texts_or_token_ids(body: dict[str, Any], num_chars: int) -> None:
    assert prompt_chars(body) == num_chars


def test_the_beginning_runs_over_the_messages_and_has_the_length_or_is_none() -> None:
    assert prompt_beginning(CHAT, 9) == "systemabc"
    assert prompt_beginning(CHAT, 14) == "systemabcuserd"
    assert prompt_beginning(CHAT, 100) is None
    assert prompt_beginning({"prompt": "hello"}, 4) == "hell"
    assert prompt_beginning({"prompt": [1, 2, 3]}, 2) is None


def test_a_session_is_what_the_client_names_or_a_conversations_user(make_turn: MakeTurn) -> None:
    long = {"prompt": "x" * 50}
    assert affinity_text(make_turn(upstream_body=long), 50) == "x" * 50
    assert affinity_text(make_turn(upstream_body=long), 51) is None
    assert affinity_text(make_turn(upstream_body=long, user="ann"), 50) == "x" * 50
    assert affinity_text(make_turn(upstream_body=long, user="ann", history=("hi",)), 50) == "user:ann"
    named = make_turn(upstream_body=long, body={"prompt_cache_key": "a"}, user="ann", history=("hi",))
    assert affinity_text(named, 50) == "session:a"
