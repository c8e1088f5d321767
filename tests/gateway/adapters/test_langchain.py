"""The compressor in LangChain's own retriever."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from langchain_classic.retrievers import ContextualCompressionRetriever
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever

from gateway.adapters.client import GravityError
from gateway.adapters.langchain import GravityCompressor
from tests.passages import FOUND, QUESTION, WANTED
from tests.servers.gateway import Scripted
from tests.servers.upstream import MODEL


class FixedRetriever(BaseRetriever):  # type: ignore[misc]
    """Finds the same documents whatever is asked."""

    documents: list[Document]

    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        return self.documents


def documents() -> list[Document]:
    return [
        Document(
            text, id=f"chunk-{place}", metadata={"title": title, "pages": [place, None], "from": {"a": 1}}
        )
        for place, (title, text) in enumerate(FOUND)
    ]


def retriever(scripted: Scripted, found: list[Document], **settings: Any) -> ContextualCompressionRetriever:
    compressor = GravityCompressor(base_url=scripted.gateway.url, **settings)
    return ContextualCompressionRetriever(
        base_compressor=compressor, base_retriever=FixedRetriever(documents=found)
    )


def expect_marked_copies(kept: list[Document], found: list[Document]) -> None:
    """Every field as it was, with two more in the metadata."""
    originals = {document.id: document for document in found}
    for document in kept:
        original = originals[document.id]
        assert document is not original
        assert document.page_content == original.page_content
        marks = {name: document.metadata[name] for name in ("relevance_score", "gravity_reason")}
        assert document.metadata == {**original.metadata, **marks}
        assert 0.0 <= marks["relevance_score"] <= 1.0
        assert marks["gravity_reason"] in ("on_theme", "linked", "best_available")


def test_a_retriever_gives_what_belongs_to_the_question(scripted: Scripted) -> None:
    """langchain#19142"""
    found = documents()
    before = copy.deepcopy(found)
    kept = retriever(scripted, found).invoke(QUESTION)
    assert [document.id for document in kept] == [f"chunk-{place}" for place in WANTED]
    expect_marked_copies(kept, found)
    assert found == before


async def test_it_does_so_asynchronously(scripted: Scripted) -> None:
    found = documents()
    before = copy.deepcopy(found)
    kept = await retriever(scripted, found).ainvoke(QUESTION)
    assert [document.id for document in kept] == [f"chunk-{place}" for place in WANTED]
    expect_marked_copies(kept, found)
    assert found == before


def test_settings_reach_the_gateway(scripted: Scripted) -> None:
    found = documents()
    everything = retriever(scripted, found, keep=0.0, order="relevance").invoke(QUESTION)
    scores = [document.metadata["relevance_score"] for document in everything]
    assert len(everything) == len(found)
    assert scores == sorted(scores, reverse=True)
    assert len(retriever(scripted, found, keep=1.0).invoke(QUESTION)) == 1
    # The scripted worker counts words: "[chunk-3] Solveig" and the 17 of its text leave no room for another.
    (single,) = retriever(scripted, found, keep=0.0, token_budget=25, model=MODEL).invoke(QUESTION)
    assert single.id in {f"chunk-{place}" for place in WANTED}


def test_documents_without_metadata_or_id_are_judged_too(scripted: Scripted) -> None:
    compressor = GravityCompressor(base_url=scripted.gateway.url)
    kept = compressor.compress_documents([Document(text) for _, text in FOUND], QUESTION)
    assert [document.page_content for document in kept] == [FOUND[place][1] for place in WANTED]


def test_no_documents_ask_nobody() -> None:
    assert GravityCompressor(base_url="http://127.0.0.1:9").compress_documents([], QUESTION) == []


def test_a_refusal_is_an_error_or_keeps_everything(scripted: Scripted) -> None:
    found = documents()
    with pytest.raises(GravityError, match="There is no such task"):
        retriever(scripted, found, task="poetry").invoke(QUESTION)
    assert retriever(scripted, found, task="poetry", on_error="keep_all").invoke(QUESTION) == found


async def test_a_gateway_that_is_away_keeps_everything_where_asked(free_port: Callable[[], int]) -> None:
    found = documents()
    away = GravityCompressor(base_url=f"http://127.0.0.1:{free_port()}", on_error="keep_all")
    assert await away.acompress_documents(found, QUESTION) == found
