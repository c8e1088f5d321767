"""What of a request the documents are judged against."""

from __future__ import annotations

from typing import Any

import orjson
from redis import Redis

from gateway.api.receive import history_of, question_of
from gateway.context.asked import MAX_CHARS, MAX_TEXTS
from tests.conftest import WaitUntil
from tests.passages import QUESTION, WANTED, found
from tests.servers.gateway import Scripted
from tests.servers.upstream import Script, whole

FOLLOW_UP = "and who was it?"


def chat(*said: str) -> dict[str, Any]:
    """A body in which user and assistant speak in turn."""
    roles = ("user", "assistant")
    return {"messages": [{"role": roles[n % 2], "content": text} for n, text in enumerate(said)]}


def test_history_is_what_was_said_before_the_last_user_message() -> None:
    body = chat("What powers her?", "Two fuel cells.", FOLLOW_UP)
    assert question_of(body) == FOLLOW_UP
    assert history_of(body) == ("What powers her?", "Two fuel cells.")
    assert history_of(chat("What powers her?")) == ()


def test_only_user_and_assistant_are_heard() -> None:
    body = chat("What powers her?", "", FOLLOW_UP)
    body["messages"][0:0] = [{"role": "system", "content": "Be brief."}, {"role": "tool", "content": "42"}]
    body["messages"].append({"role": "assistant", "content": "It was"})  # to be continued
    assert history_of(body) == ("What powers her?",)


def test_parts_of_a_message_are_one_text_and_images_none() -> None:
    image = {"type": "image_url", "image_url": {}}
    parts = [{"type": "text", "text": "What"}, image, {"type": "text", "text": "is it?"}]
    body = chat("", "", FOLLOW_UP)
    body["messages"][0]["content"] = parts
    body["messages"][1]["content"] = None
    assert history_of(body) == ("What\nis it?",)


def test_a_long_conversation_is_read_to_a_bound() -> None:
    body = chat(*(f"{n} " + "x" * 3 * MAX_CHARS for n in range(41)))
    heard = history_of(body)
    assert [text.partition(" ")[0] for text in heard] == [str(n) for n in range(40 - MAX_TEXTS, 40)]
    assert max(map(len, heard)) == MAX_CHARS


def test_a_prompt_and_a_chat_without_user_have_no_history() -> None:
    assert history_of({"prompt": "What powers her?"}) == ()
    assert history_of({"messages": [{"role": "assistant", "content": "Hello."}]}) == ()


def test_a_follow_up_keeps_the_documents_of_its_conversation(
    scripted: Scripted, valkey_url: str, wait_until: WaitUntil
) -> None:
    scripted.upstream.plays(Script([whole("ok")], content_type="application/json"))
    body = chat(QUESTION, "I do not know.", FOLLOW_UP)
    answer = scripted.post(**body, documents=found())
    told = answer.json()["gravity"]["documents"]
    kept = {index for index, document in enumerate(told) if document["kept"]}
    assert set(WANTED) <= kept
    key = f"ng:turn:{answer.headers['x-gravity-turn-id']}"
    with Redis.from_url(valkey_url) as redis:
        record = orjson.loads(wait_until(lambda: redis.get(key)))
    assert record["history"] == [QUESTION, "I do not know."]
