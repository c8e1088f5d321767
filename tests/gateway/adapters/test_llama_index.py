"""The postprocessor in LlamaIndex's own query engine."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.llms import MockLLM
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.response_synthesizers import get_response_synthesizer
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from gateway.adapters.client import GravityError
from gateway.adapters.llama_index import GravityPostprocessor
from tests.passages import FOUND, QUESTION, WANTED
from tests.servers.gateway import Scripted


class FixedRetriever(BaseRetriever):  # type: ignore[misc]
    """Finds the same nodes whatever is asked."""

    def __init__(self, nodes: list[NodeWithScore]) -> None:
        super().__init__()
        self._nodes = nodes

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return self._nodes


def nodes() -> list[NodeWithScore]:
    """The middle one has no score, as some retrievers leave it."""
    return [
        NodeWithScore(
            node=TextNode(id_=f"node-{place}", text=text, metadata={"title": title, "page": place}),
            score=None if place == 2 else 1.0 - place / 10,
        )
        for place, (title, text) in enumerate(FOUND)
    ]


def expect_the_wanted(kept: list[NodeWithScore], found: list[NodeWithScore]) -> None:
    """The same nodes, as sent, with scores of the gateway's."""
    assert [each.node for each in kept] == [found[place].node for place in WANTED]
    assert all(each.node is found[place].node for each, place in zip(kept, WANTED, strict=True))
    assert all(each.score is not None and 0.0 <= each.score <= 1.0 for each in kept)


def test_what_belongs_to_the_question_stays(scripted: Scripted) -> None:
    """llama_index#12497: a missing score drops nothing; llama_index PR22354: in the order that it came."""
    found = nodes()
    before = copy.deepcopy(found)
    postprocessor = GravityPostprocessor(base_url=scripted.gateway.url)
    expect_the_wanted(postprocessor.postprocess_nodes(found, query_str=QUESTION), found)
    assert found == before


async def test_it_does_so_asynchronously(scripted: Scripted) -> None:
    found = nodes()
    postprocessor = GravityPostprocessor(base_url=scripted.gateway.url)
    expect_the_wanted(await postprocessor.apostprocess_nodes(found, query_str=QUESTION), found)


def test_a_query_engine_answers_from_what_stays(scripted: Scripted) -> None:
    """LlamaIndex's MockLLM answers with its prompt."""
    found = nodes()
    engine = RetrieverQueryEngine(
        retriever=FixedRetriever(found),
        response_synthesizer=get_response_synthesizer(llm=MockLLM()),
        node_postprocessors=[GravityPostprocessor(base_url=scripted.gateway.url)],
    )
    answer = engine.query(QUESTION)
    expect_the_wanted(answer.source_nodes, found)
    assert [place for place, (_, text) in enumerate(FOUND) if text in str(answer)] == list(WANTED)


def test_settings_reach_the_gateway(scripted: Scripted) -> None:
    def kept(**settings: Any) -> list[NodeWithScore]:
        postprocessor = GravityPostprocessor(base_url=scripted.gateway.url, **settings)
        result: list[NodeWithScore] = postprocessor.postprocess_nodes(nodes(), query_str=QUESTION)
        return result

    everything = kept(keep=0.0, order="relevance")
    assert len(everything) == len(FOUND)
    scores = [each.score or 0.0 for each in everything]
    assert scores == sorted(scores, reverse=True)
    assert len(kept(keep=1.0)) == 1


def test_no_nodes_ask_nobody() -> None:
    assert GravityPostprocessor(base_url="http://127.0.0.1:9").postprocess_nodes([], query_str=QUESTION) == []


def test_a_refusal_is_an_error_or_keeps_everything(scripted: Scripted) -> None:
    found = nodes()
    refused = GravityPostprocessor(base_url=scripted.gateway.url, task="poetry")
    with pytest.raises(GravityError, match="There is no such task"):
        refused.postprocess_nodes(found, query_str=QUESTION)
    with pytest.raises(GravityError, match="no query"):
        refused.postprocess_nodes(found)
    lenient = GravityPostprocessor(base_url=scripted.gateway.url, task="poetry", on_error="keep_all")
    assert lenient.postprocess_nodes(found, query_str=QUESTION) == found


def test_it_can_be_written_down_without_its_key_and_clients() -> None:
    written = GravityPostprocessor(task="rag_qa", keep="safe", api_key="secret").to_json()
    assert "secret" not in written
    assert "http_client" not in written
    read = GravityPostprocessor.from_json(written)
    assert (read.task, read.keep, read.class_name()) == ("rag_qa", "safe", "GravityPostprocessor")
