"""``/v1/prune``: a turn's pruning without the turn."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from gateway.api.prune import asked
from tests.passages import BREAD, BUILDER, FERRY, FOUND, QUESTION, WANTED, found
from tests.servers.gateway import Gateway, Scripted
from tests.servers.upstream import MODEL, Script, whole
from worker.models import BUNDLED_MODEL

PATH = "/v1/prune"


def prune(scripted: Scripted, **body: Any) -> dict[str, Any]:
    """Prune the ferry's documents; ``body`` replaces or adds fields."""
    response = post(scripted, **{"query": QUESTION, "documents": found(), **body})
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def post(scripted: Scripted, **body: Any) -> httpx.Response:
    return scripted.client.post(PATH, json=body)


def indices(answer: dict[str, Any]) -> list[int]:
    return [document["index"] for document in answer["documents"]]


def test_what_belongs_to_the_question_stays_as_it_was_sent(scripted: Scripted) -> None:
    source = {"url": "https://a.example", "pages": [1, None, {"of": 2.5}]}
    answer = prune(scripted, documents=found(source=source, score=0.25))
    assert answer["object"] == "prune"
    assert indices(answer) == list(WANTED)
    for document in answer["documents"]:
        title, text = FOUND[document["index"]]
        assert (document["title"], document["text"]) == (title, text)
        assert document["metadata"] == {"source": source, "score": 0.25}
        assert document["id"] == f"doc-{document['index']}"
        assert document["detail"].endswith(".")
    assert [verdict["kept"] for verdict in answer["verdicts"]] == [False, True, False, True, False]
    assert [verdict["index"] for verdict in answer["verdicts"]] == [0, 1, 2, 3, 4]
    assert {"Solveig"} <= set(answer["theme"])


def test_documents_that_contradict_each_other_both_stay_and_are_named(scripted: Scripted) -> None:
    other = FERRY.replace("two hydrogen", "three hydrogen")
    documents = [{"id": "old", "text": FERRY}, *found()[:1], {"id": "new", "text": other}]
    answer = prune(scripted, documents=documents)
    assert [document["id"] for document in answer["documents"]] == ["old", "new"]
    (conflict,) = answer["conflicts"]
    assert conflict["documents"] == ["old", "new"]
    assert ["two" in conflict["spans"][0], "three" in conflict["spans"][1]] == [True, True]
    assert conflict["detail"].endswith(".")


def test_the_report_is_the_one_of_a_turn(scripted: Scripted) -> None:
    scripted.upstream.plays(Script([whole("ok")], content_type="application/json"))
    turn = scripted.post(messages=[{"role": "user", "content": QUESTION}], documents=found())
    told = turn.json()["gravity"]
    answer = prune(scripted, model=MODEL)
    shared = ("theme", "conflicts", "centres", "tokens_before", "tokens_after", "note", "task", "config_sha")
    assert {name: answer[name] for name in shared} == {name: told[name] for name in shared}
    assert answer["are_tokens_estimated"] is told["are_tokens_estimated"] is False
    fields = ("id", "kept", "reason", "score", "tokens", "cluster", "duplicate_of", "detail")
    assert [[verdict[name] for name in fields] for verdict in answer["verdicts"]] == [
        [document[name] for name in fields] for document in told["documents"]
    ]


def test_the_context_is_the_prompt_of_a_turn(scripted: Scripted) -> None:
    answer = prune(scripted)
    expected = (
        f"Answer from these documents.\n\n[doc-1] Haugland & Sons\n{BUILDER}\n\n[doc-3] Solveig\n{FERRY}"
    )
    assert answer["context"] == expected
    scripted.upstream.plays(Script([whole("ok")], content_type="application/json"))
    scripted.post(messages=[{"role": "user", "content": QUESTION}], documents=found())
    assert scripted.upstream.received[0][1]["messages"][0]["content"] == f"{expected}\n\n{QUESTION}"


def test_tokens_are_the_models_own_where_a_worker_has_it_and_estimates_elsewhere(scripted: Scripted) -> None:
    """The scripted worker's tokenizer counts words; "[doc-3]" is one."""
    own = prune(scripted, model=MODEL)
    words = [len(title.split()) + len(text.split()) + 1 for title, text in FOUND]
    assert [verdict["tokens"] for verdict in own["verdicts"]] == words
    assert own["tokens_before"] == sum(words)
    assert own["tokens_after"] == sum(words[index] for index in WANTED)
    assert own["are_tokens_estimated"] is False
    for model in (None, "a-model-that-lives-elsewhere"):
        guessed = prune(scripted, model=model)
        assert guessed["are_tokens_estimated"] is True
        assert guessed["model"] == model
        assert guessed["tokens_before"] > sum(words)


def test_a_real_workers_tokens_are_those_of_its_tokenizer(real_gateway: Gateway, tokenizer: Any) -> None:
    body = {"query": QUESTION, "documents": found(), "model": BUNDLED_MODEL, "keep": 0.0, "token_budget": 80}
    answer = httpx.post(real_gateway.url + PATH, json=body, timeout=60.0).json()
    shown = [f"[doc-{place}] {title}\n{text}\n\n" for place, (title, text) in enumerate(FOUND)]
    expected = [len(tokenizer.encode(each, add_special_tokens=False)) for each in shown]
    assert [verdict["tokens"] for verdict in answer["verdicts"]] == expected
    assert answer["are_tokens_estimated"] is False
    prompt = answer["context"].removeprefix("Answer from these documents.\n\n")
    assert len(tokenizer.encode(prompt, add_special_tokens=False)) <= answer["tokens_after"] <= 80


def test_the_order_is_the_one_asked_for(scripted: Scripted) -> None:
    sent = {
        order: indices(prune(scripted, order=order, keep=0.0)) for order in ("as_sent", "relevance", "ends")
    }
    scores = {verdict["index"]: verdict["score"] for verdict in prune(scripted)["verdicts"]}
    best = sorted(scores, key=lambda index: (-scores[index], index))
    assert sent == {
        "as_sent": [0, 1, 2, 3, 4],
        "relevance": best,
        "ends": [best[0], best[2], best[4], best[3], best[1]],
    }
    assert set(best[:2]) == set(WANTED)


def test_the_setting_can_be_another_for_one_request(scripted: Scripted) -> None:
    assert indices(prune(scripted, keep=0.0)) == [0, 1, 2, 3, 4]
    strictest = prune(scripted, keep=1.0)
    assert len(indices(strictest)) == 1
    assert set(indices(strictest)) <= set(WANTED)
    assert strictest["documents"][0]["reason"] == "best_available"
    assert set(indices(prune(scripted))) <= set(indices(prune(scripted, keep="safe")))


def test_a_conversation_is_asked_about_its_last_user_message(scripted: Scripted) -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "How do I bake bread?"},
        {"role": "assistant", "content": "Slowly."},
        {"role": "user", "content": [{"type": "text", "text": QUESTION}]},
    ]
    answer = prune(scripted, query=None, messages=messages)
    assert set(WANTED) <= set(indices(answer))
    query = asked({"messages": messages, "documents": []})
    assert query.question == QUESTION
    assert query.history == ("How do I bake bread?", "Slowly.")
    assert asked({"query": QUESTION, "documents": []}).history == ()


def test_a_question_that_leaves_the_subject_out_takes_it_from_the_conversation(scripted: Scripted) -> None:
    elliptic = "And what else is known of it?"
    messages = [
        {"role": "user", "content": "What is the ferry Solveig powered by?"},
        {"role": "assistant", "content": "The Solveig has two hydrogen fuel cells."},
        {"role": "user", "content": elliptic},
    ]
    alone = prune(scripted, query=elliptic)
    in_conversation = prune(scripted, query=None, messages=messages)
    assert alone["theme"] is None
    assert "Solveig" in in_conversation["theme"]
    ferry = WANTED[1]
    assert ferry in indices(in_conversation)
    assert in_conversation["verdicts"][ferry]["score"] > 2 * alone["verdicts"][ferry]["score"]


def test_chunks_of_one_page_may_share_its_id(scripted: Scripted) -> None:
    documents = [{"id": "page", "text": text, "part": part} for part, (_, text) in enumerate(FOUND)]
    answer = prune(scripted, documents=documents)
    assert [document["metadata"]["part"] for document in answer["documents"]] == indices(answer)
    assert {document["id"] for document in answer["documents"]} == {"page"}


def test_every_shape_of_the_chat_endpoint_is_taken(scripted: Scripted) -> None:
    documents = [BREAD, {"id": "yard", "data": {"text": BUILDER, "lang": "en"}}, {"text": FERRY}]
    answer = prune(scripted, documents=documents)
    assert [(each["id"], each["metadata"]) for each in answer["documents"]] == [
        ("yard", {"lang": "en"}),
        ("doc-2", {}),
    ]


def test_no_documents_are_no_error(scripted: Scripted) -> None:
    """langchain4j#770"""
    answer = prune(scripted, documents=[])
    assert (answer["documents"], answer["verdicts"], answer["context"]) == ([], [], "")
    assert answer["tokens_before"] == answer["tokens_after"] == 0


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"documents": None}, "documents"),
        ({"documents": "a"}, "documents"),
        ({"documents": [{"title": "a"}]}, "documents[0].text"),
        ({"query": None}, "query"),
        ({"query": " \n"}, "query"),
        ({"query": 7}, "query"),
        ({"messages": [{"role": "user", "content": "and a query"}]}, "query"),
        ({"query": None, "messages": []}, "messages"),
        ({"query": None, "messages": [{"role": "system", "content": "a"}]}, "messages"),
        ({"query": None, "messages": [{"content": "a"}]}, "messages[0].role"),
        ({"keep": "loose"}, "keep"),
        ({"keep": 1.5}, "keep"),
        ({"keep": True}, "keep"),
        ({"token_budget": 3}, "token_budget"),
        ({"order": "shuffled"}, "order"),
        ({"task": "poetry"}, "task"),
        ({"model": 1}, "model"),
    ],
)
def test_what_cannot_be_served_is_named(scripted: Scripted, body: dict[str, Any], param: str) -> None:
    response = post(scripted, **{"query": QUESTION, "documents": found(), **body})
    error = response.json()["error"]
    assert (response.status_code, error["type"], error["param"]) == (400, "invalid_request_error", param)
    assert "poetry" not in error["message"]


def test_a_value_between_two_types_is_told_both(scripted: Scripted) -> None:
    message = post(scripted, query=QUESTION, documents=[], keep=1.5).json()["error"]["message"]
    assert "'balanced' or 'safe'" in message
    assert "less than or equal to 1" in message


def test_a_field_that_nobody_knows_is_not_looked_at(scripted: Scripted) -> None:
    assert indices(prune(scripted, made_up={"a": 1})) == list(WANTED)


def test_a_body_that_is_no_json_is_refused(scripted: Scripted) -> None:
    response = scripted.client.post(PATH, content=b'{"query": NaN}')
    assert (response.status_code, response.json()["error"]["code"]) == (400, "invalid_json")


def test_the_answer_has_the_requests_id(scripted: Scripted) -> None:
    body = {"query": QUESTION, "documents": []}
    answer = scripted.client.post(PATH, json=body, headers={"X-Request-Id": "mine-1"})
    assert answer.json()["id"] == answer.headers["x-request-id"] == "mine-1"


def num_counted(scripted: Scripted, status_class: str) -> float:
    """How often this route was answered so, by the metrics."""
    labels = rf'error_code="",route="{PATH}",status_class="{status_class}"'
    match = re.search(
        rf"gravity_http_requests_total\{{{labels}\}} (\S+)", scripted.client.get("/metrics").text
    )
    return float(match[1]) if match else 0.0


def test_requests_are_counted_by_their_route(scripted: Scripted) -> None:
    before = num_counted(scripted, "2xx")
    prune(scripted, documents=[])
    assert num_counted(scripted, "2xx") == before + 1


def test_leaving_ends_the_work(scripted: Scripted, wait_until: Callable[..., Any]) -> None:
    """Four hundred chunks that no cache has take seconds; nobody waits for them after 0.3 s."""
    prune(scripted)  # the encoder is loaded
    before = num_counted(scripted, "cancelled")
    words = [word for _, text in FOUND for word in text.split()]
    draw = random.Random(3)
    documents = [" ".join(draw.choices(words, k=80)) for _ in range(400)]
    with pytest.raises(httpx.ReadTimeout):
        scripted.client.post(PATH, json={"query": QUESTION, "documents": documents}, timeout=0.3)
    wait_until(lambda: scripted.gateway.deps.drain.num_open == 0, timeout_s=0.5)
    wait_until(lambda: num_counted(scripted, "cancelled") == before + 1)
