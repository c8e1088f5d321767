"""``/v1/rerank`` with Cohere's own SDK, and in Jina's shape over plain HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import cohere
import httpx
import pytest

from gateway.context.pruner import MAX_DOCUMENTS
from tests.passages import BREAD, BUILDER, CHESS, FERRY, FOUND, QUESTION, WANTED, found
from tests.servers.gateway import Gateway, Scripted, StartGateway
from tests.servers.upstream import Upstream

TEXTS = [text for _, text in FOUND]


@pytest.fixture(scope="module")
def sdk(shared_gateway: Scripted) -> Iterator[httpx.Client]:
    """What both of Cohere's clients talk through; they leave theirs open."""
    with httpx.Client(timeout=60.0) as client:
        yield client


def rerank(gateway: Gateway, path: str = "/v1/rerank", **body: Any) -> httpx.Response:
    return httpx.post(gateway.url + path, json=body, timeout=60.0)


def results(response: httpx.Response) -> list[tuple[int, float]]:
    assert response.status_code == 200, response.text
    return [(each["index"], each["relevance_score"]) for each in response.json()["results"]]


def test_coheres_second_client_reads_the_ranking(scripted: Scripted, sdk: httpx.Client) -> None:
    client = cohere.ClientV2(api_key="x", base_url=scripted.gateway.url, httpx_client=sdk)
    answer = client.rerank(model="rerank-v3.5", query=QUESTION, documents=TEXTS, top_n=3)
    assert {each.index for each in answer.results[:2]} == set(WANTED)
    scores = [each.relevance_score for each in answer.results]
    assert len(scores) == 3
    assert scores == sorted(scores, reverse=True)
    assert 0.0 <= scores[2] < scores[1] <= scores[0] <= 1.0
    assert answer.meta.billed_units.search_units == 1
    assert answer.meta.api_version.version == "2"
    assert answer.id


def test_coheres_first_client_gets_its_documents_back(scripted: Scripted, sdk: httpx.Client) -> None:
    client = cohere.Client(api_key="x", base_url=scripted.gateway.url, httpx_client=sdk)
    documents = [{"text": text, "title": title} for title, text in FOUND]
    answer = client.rerank(
        model="rerank-v3.5", query=QUESTION, documents=documents, return_documents=True, top_n=2
    )
    assert {each.document.text for each in answer.results} == {FERRY, BUILDER}
    plain = client.rerank(query=QUESTION, documents=TEXTS)
    assert [each.document for each in plain.results] == [None] * len(TEXTS)


def test_coheres_client_is_told_what_is_wrong(scripted: Scripted, sdk: httpx.Client) -> None:
    client = cohere.ClientV2(api_key="x", base_url=scripted.gateway.url, httpx_client=sdk)
    with pytest.raises(cohere.BadRequestError) as error:
        client.rerank(model="rerank-v3.5", query="", documents=TEXTS)
    assert error.value.body["error"]["param"] == "query"


@pytest.mark.parametrize("path", ["/v1/rerank", "/v2/rerank", "/rerank"])
def test_jinas_shape_is_answered_at_every_path(scripted: Scripted, path: str) -> None:
    body = {
        "model": "jina-reranker-v2",
        "query": QUESTION,
        "documents": found(page=7),
        "return_documents": True,
    }
    response = rerank(scripted.gateway, path, **body, top_n=1)
    answer = response.json()
    assert answer["model"] == "jina-reranker-v2"
    (best,) = answer["results"]
    title, text = FOUND[best["index"]]
    assert best["document"] == {"text": text, "title": title, "page": 7}
    assert answer["usage"]["total_tokens"] == answer["usage"]["prompt_tokens"] > 0


def test_all_are_ranked_and_none_is_dropped_for_its_score(scripted: Scripted) -> None:
    ranked = results(rerank(scripted.gateway, query=QUESTION, documents=TEXTS, top_n=99))
    assert sorted(index for index, _ in ranked) == [0, 1, 2, 3, 4]


def test_scores_are_the_keep_probabilities_of_pruning(scripted: Scripted) -> None:
    ranked = results(rerank(scripted.gateway, query=QUESTION, documents=found()))
    report = scripted.client.post("/v1/prune", json={"query": QUESTION, "documents": found()}).json()
    pruned = {verdict["index"]: verdict["score"] for verdict in report["verdicts"]}
    assert dict(ranked) == pytest.approx(pruned, abs=1e-4)


def test_copies_follow_their_original_and_empty_ones_are_last(scripted: Scripted) -> None:
    documents = ["", FERRY + " ", BREAD, FERRY, "拖船由什么驱动？", " \n"]
    response = rerank(scripted.gateway, query=QUESTION, documents=documents)
    ranked = results(response)
    assert [index for index, _ in ranked] == [1, 3, 4, 2, 0, 5]
    scores = dict(ranked)
    assert scores[1] == scores[3] > 0.5
    assert scores[4] == 0.5
    assert scores[0] == scores[5] == 0.0
    (warning,) = response.json()["meta"]["warnings"]
    assert warning.startswith("1 of 6 documents were not judged")


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"query": ""}, "query"),
        ({"query": "  "}, "query"),
        ({"query": None}, "query"),
        ({"documents": []}, "documents"),
        ({"documents": None}, "documents"),
        ({"documents": [CHESS] * (MAX_DOCUMENTS + 1)}, "documents"),
        ({"documents": [CHESS, 1]}, "documents[1]"),
        ({"top_n": 0}, "top_n"),
        ({"top_n": -1}, "top_n"),
        ({"top_n": "2"}, "top_n"),
        ({"max_tokens_per_doc": 0}, "max_tokens_per_doc"),
        ({"return_documents": "yes"}, "return_documents"),
    ],
)
def test_what_cannot_be_ranked_is_named(scripted: Scripted, body: dict[str, Any], param: str) -> None:
    response = rerank(scripted.gateway, **{"query": QUESTION, "documents": TEXTS, **body})
    error = response.json()["error"]
    assert (response.status_code, error["type"], error["param"]) == (400, "invalid_request_error", param)


def test_without_an_encoder_there_is_no_ranking(upstream: Upstream, start_gateway: StartGateway) -> None:
    """The order as sent would look like one. A pruning without encoder keeps everything and says so."""
    gateway = start_gateway(upstream.url, encoder_model="/no/such/folder")
    response = rerank(gateway, query=QUESTION, documents=TEXTS)
    error = response.json()["error"]
    assert (response.status_code, error["type"], error["code"]) == (
        503,
        "server_error",
        "encoder_unavailable",
    )
    assert int(response.headers["retry-after"]) >= 1
    assert "encoder" in error["message"]
    pruned = httpx.post(gateway.url + "/v1/prune", json={"query": QUESTION, "documents": TEXTS}).json()
    assert [document["index"] for document in pruned["documents"]] == [0, 1, 2, 3, 4]
    assert pruned["note"].startswith("Not pruned: ")
