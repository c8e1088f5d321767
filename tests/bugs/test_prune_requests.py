"""Public reports about what comes back from pruning, as requests to ``/v1/prune``."""

from __future__ import annotations

from typing import Any

import pytest

from tests.passages import FERRY, QUESTION, WANTED, found
from tests.servers.gateway import Scripted
from tests.servers.upstream import MODEL, Script, whole


def prune(scripted: Scripted, documents: list[Any], **body: Any) -> dict[str, Any]:
    sent = {"query": QUESTION, "documents": documents, "model": MODEL, **body}
    response = scripted.client.post("/v1/prune", json=sent)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def indices(answer: dict[str, Any]) -> list[int]:
    return [document["index"] for document in answer["documents"]]


def test_langchain_19142_metadata_comes_back_untouched(scripted: Scripted) -> None:
    """Whatever JSON can hold, names that look like ours among it."""
    metadata = {
        "source": {"file": "a.pdf", "pages": [1, 2.5, None, True]},
        "score": -3,
        "reason": "theirs",
        "index": 99,
        "metadata": {"detail": ""},
        "größe": "Ø \u2028 😀",
    }
    answer = prune(scripted, found(**metadata))
    assert indices(answer) == list(WANTED)
    assert [document["metadata"] for document in answer["documents"]] == [metadata] * len(WANTED)


def test_llama_index_12497_scores_missing_on_some_drop_nothing(scripted: Scripted) -> None:
    documents = found()
    documents[0]["score"] = 0.99
    documents[1]["score"] = None
    documents[4]["score"] = "high"
    assert prune(scripted, documents)["verdicts"] == prune(scripted, found())["verdicts"]


def test_llama_index_pr22354_what_stays_is_never_shuffled_by_score(scripted: Scripted) -> None:
    for documents in (found(), found()[::-1]):
        answer = prune(scripted, documents)
        assert indices(answer) == sorted(indices(answer))
        assert [each["text"] for each in answer["documents"]] == [
            documents[index]["text"] for index in indices(answer)
        ]
        assert len(indices(answer)) == len(WANTED)


@pytest.mark.parametrize("order", ["as_sent", "relevance", "ends"])
def test_openrag_851_a_budget_is_never_exceeded(scripted: Scripted, order: str) -> None:
    """agentmemory#1232, lilbee PR837. The scripted worker counts words, so the prompt can be counted here."""
    documents = [{"text": " ".join([FERRY, "She also carries bicycles and mail."] * 9)}, *found()]
    for budget in (16, 20, 24, 30, 45, 60, 1_000):
        answer = prune(scripted, documents, keep=0.0, token_budget=budget, order=order)
        prompt = answer["context"].removeprefix("Answer from these documents.")
        assert len(prompt.split()) == answer["tokens_after"] <= budget
        for verdict in answer["verdicts"]:
            assert verdict["kept"] or verdict["reason"] in ("over_budget", "duplicate")
    assert prune(scripted, documents, keep=0.0, token_budget=16)["documents"]


def test_openrag_851_a_budget_that_nothing_fits_is_said(scripted: Scripted) -> None:
    answer = prune(scripted, [{"text": FERRY}, {"text": FERRY.replace("ferry", "boat")}], token_budget=16)
    assert (answer["documents"], answer["context"], answer["tokens_after"]) == ([], "", 0)
    assert "budget of 16" in answer["note"]


def test_pgedge_rag_server_9_a_question_that_nothing_is_about_has_no_theme(scripted: Scripted) -> None:
    answer = prune(scripted, found(), query="How do I renew my passport at the embassy in Lima?")
    assert answer["theme"] is None
    assert len(answer["documents"]) <= 2
    assert answer["note"]


@pytest.mark.parametrize(
    "text",
    [
        "港口拖船由两个氢燃料电池驱动，于2019年下水。",
        "このタグボートは水素燃料電池で動きます。𠮷野家の前から出ます。",
        "한국어 문장입니다. Ｆｕｌｌｗｉｄｔｈ　ｔｅｘｔ 👩‍🚀",
    ],
)
def test_llmlingua_4_63_other_scripts_reach_the_worker_as_they_were_sent(
    scripted: Scripted, text: str
) -> None:
    scripted.upstream.plays(Script([whole("ok")], content_type="application/json"))
    answer = scripted.post(documents=[{"text": text, "id": "foreign"}, *found()])
    assert answer.status_code == 200
    verdict = answer.json()["gravity"]["documents"][0]
    assert (verdict["id"], verdict["kept"]) == ("foreign", True)
    sent = scripted.upstream.received[0][1]["messages"]
    assert text in "".join(message["content"] for message in sent)


@pytest.mark.parametrize("documents", [[], [""], [{"text": " \n"}, {"title": "A title alone", "text": ""}]])
def test_langchain4j_770_documents_that_are_none_are_served_without_context(
    scripted: Scripted, documents: list[Any]
) -> None:
    """langchain#5304 too: an empty document."""
    scripted.upstream.plays(Script([whole("ok")], content_type="application/json"))
    answer = scripted.post(documents=documents)
    assert answer.status_code == 200
    assert [each["reason"] for each in answer.json()["gravity"]["documents"]] == ["empty"] * len(documents)
    assert [message["role"] for message in scripted.upstream.received[0][1]["messages"]] == ["user"]
