from __future__ import annotations

import json

import orjson
import pytest

from gateway.flow.messages import Messages, dumps

SENT = [
    {"role": "system", "content": 'He wrote "14 ships" — no more.\n'},
    {"role": "user", "content": "How many?"},
]


def test_a_body_is_written_as_the_standard_library_writes_it() -> None:
    body = {"model": "m", "messages": Messages(SENT), "temperature": 0.5, "stop": ["a", "b"], "n": None}
    expected = json.dumps({**body, "messages": SENT}, ensure_ascii=False, separators=(",", ":"))
    assert dumps(body).decode() == expected


def test_the_same_bytes_are_used_wherever_the_messages_stand() -> None:
    messages = Messages(SENT)
    first = messages.json
    assert json.loads(dumps({"body": {"messages": messages}, "sent": [messages]})) == {
        "body": {"messages": SENT},
        "sent": [SENT],
    }
    assert messages.json is first


def test_to_everybody_else_they_are_a_list() -> None:
    messages = Messages(SENT)
    assert messages == SENT
    assert orjson.loads(orjson.dumps(messages)) == SENT
    assert type(messages[:1]) is list


def test_what_is_no_json_is_named() -> None:
    class Kind(dict[str, int]):
        pass

    with pytest.raises(TypeError, match="Kind"):
        dumps({"kind": Kind(one=1)})
