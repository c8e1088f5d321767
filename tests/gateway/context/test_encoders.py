"""Which of two encoders judges a request, and what becomes of it where that one fails."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from gateway.context.decide import PruneOptions, PruneQuery
from gateway.context.embed import Encoder, EncoderSettings
from gateway.context.encoders import EncoderChoice, Encoders
from gateway.context.pruner import Pruner
from gateway.context.remote import RemoteSettings
from gateway.context.report import Document, PruneReport, Verdict
from gateway.errors import EncoderError
from tests.pruning import count_words
from tests.servers.embeddings import SERVED_MODEL, EmbeddingServer, Scripted

ENGLISH = Document("en", "Silver coats the mirror of the telescope.")
CHINESE = Document("zh", "望远镜的镜面镀有一层银。")
OTHER = Document("soup", "韭葱汤要用黄油慢慢煮。")
QUESTION = "Which metal coats the mirror?"


@pytest.fixture
async def both(pruner: Pruner, embedding_server: EmbeddingServer) -> AsyncIterator[Encoders]:
    """The session's local encoder and a remote one."""
    remote = Encoder(RemoteSettings(embedding_server.url, SERVED_MODEL, timeout_s=30.0))
    yield Encoders(pruner.encoders.local, remote)
    await remote.aclose()


@pytest.fixture
async def judged(both: Encoders) -> AsyncIterator[Pruner]:
    pruner = Pruner(both, timeout_s=150.0)
    yield pruner
    pruner._thread.shutdown()  # the local encoder is everybody's


def name(encoders: Encoders, chosen: Encoder) -> str:
    return "local" if chosen is encoders.local else "remote"


@pytest.mark.parametrize(
    ("choice", "question", "documents", "expected"),
    [
        ("auto", QUESTION, [ENGLISH, ENGLISH], "local"),
        ("auto", QUESTION, [ENGLISH, CHINESE], "local"),
        ("auto", QUESTION, [ENGLISH, CHINESE, OTHER], "remote"),
        ("auto", "镜面镀有什么金属？", [ENGLISH, ENGLISH], "remote"),
        ("auto", QUESTION, [replace(CHINESE, text=" "), ENGLISH], "local"),
        ("local", "镜面镀有什么金属？", [CHINESE], "local"),
        ("remote", QUESTION, [ENGLISH], "remote"),
    ],
)
def test_the_script_of_question_and_documents_decides(
    both: Encoders, choice: EncoderChoice, question: str, documents: list[Document], expected: str
) -> None:
    assert name(both, both.choose(choice, question, documents)) == expected


def test_without_a_remote_encoder_the_local_one_takes_what_it_can_read(both: Encoders) -> None:
    alone = Encoders(both.local)
    assert alone.choose("auto", "镜面镀有什么金属？", [CHINESE]) is both.local
    with pytest.raises(EncoderError, match="no remote encoder"):
        alone.choose("remote", QUESTION, [ENGLISH])


def test_a_model_for_every_script_reads_every_script() -> None:
    encoder = Encoder(EncoderSettings(model="multilingual", reads="any"))
    assert encoder.can_read(CHINESE.text)
    assert encoder.space == "foreign"
    encoder.close()


async def test_the_remote_encoder_judges_what_the_local_one_cannot_read(
    judged: Pruner, embedding_server: EmbeddingServer
) -> None:
    query = PruneQuery("镜面镀有什么金属？", (CHINESE, OTHER))
    report = await judged.prune(query, PruneOptions(), count_words)
    assert {verdict.reason for verdict in report.verdicts}.isdisjoint({"not_judged", "unpruned"})
    assert any(verdict.is_kept for verdict in report.verdicts)
    assert set(embedding_server.inputs) >= {query.question, CHINESE.text, OTHER.text}
    again = await judged.prune(query, PruneOptions(), count_words)
    assert again.num_cache_hits == 3
    assert again.verdicts == report.verdicts


async def test_a_task_may_keep_to_the_local_encoder(
    judged: Pruner, embedding_server: EmbeddingServer
) -> None:
    query = PruneQuery("镜面镀有什么金属？", (CHINESE, OTHER))
    report = await judged.prune(query, PruneOptions(encoder="local"), count_words)
    assert [verdict.reason for verdict in report.verdicts] == ["not_judged", "not_judged"]
    assert embedding_server.received == []


async def test_all_of_a_request_is_judged_by_one_encoder(
    judged: Pruner, embedding_server: EmbeddingServer
) -> None:
    query = PruneQuery(QUESTION, (ENGLISH, CHINESE, OTHER))
    report = await judged.prune(query, PruneOptions(), count_words)
    assert set(embedding_server.inputs) >= {QUESTION, ENGLISH.text, CHINESE.text, OTHER.text}
    assert report.verdicts[0].is_kept


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        (Scripted(200, b'{"data": []}'), "0 embeddings for"),
        (Scripted(401), "answered 401"),
        (Scripted(200, b"garbage"), "no list of embeddings"),
    ],
)
async def test_where_the_remote_encoder_fails_all_is_kept_and_the_report_says_why(
    judged: Pruner, embedding_server: EmbeddingServer, broken: Scripted, why: str
) -> None:
    embedding_server.script.append(broken)
    report = await judged.prune(PruneQuery(QUESTION, (ENGLISH,)), PruneOptions(encoder="remote"), count_words)
    assert [verdict.reason for verdict in report.verdicts] == ["unpruned"]
    assert why in report.note


async def test_a_request_for_an_encoder_that_is_not_set_up_is_not_pruned(both: Encoders) -> None:
    pruner = Pruner(both.local, timeout_s=150.0)
    report = await pruner.prune(PruneQuery(QUESTION, (ENGLISH,)), PruneOptions(encoder="remote"), count_words)
    assert "no remote encoder is set up" in report.note
    pruner._thread.shutdown()


async def test_embeddings_of_the_remote_encoder_are_used_with_it(
    judged: Pruner, both: Encoders, embedding_server: EmbeddingServer
) -> None:
    assert both.remote is not None
    documents = [ENGLISH, replace(ENGLISH, id="soup", text="Leek soup with cream and a little thyme.")]
    encoded = await both.remote.encode([document.text for document in documents])
    sent = tuple(
        replace(document, embedding=tuple(encoding.vector.tolist()))
        for document, encoding in zip(documents, encoded.encodings, strict=True)
    )
    embedding_server.received.clear()
    report = await judged.prune(PruneQuery(QUESTION, sent), PruneOptions(encoder="remote"), count_words)
    assert report.note == ""
    assert embedding_server.inputs == [QUESTION]  # the probe is known
    assert verdict_of(report, "en").score > verdict_of(report, "soup").score


def verdict_of(report: PruneReport, document_id: str) -> Verdict:
    return next(verdict for verdict in report.verdicts if verdict.document_id == document_id)
