"""Pruning with the real encoder: small sets of chunks, and what a person would keep of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gateway.context.decide import PruneOptions, PruneQuery
from gateway.context.embed import EncoderSettings
from gateway.context.pruner import MAX_DOCUMENTS, Pruner
from gateway.context.report import Document, PruneReport
from tests.pruning import Prune, count_words

Documents = tuple[Document, ...]


def kept(report: PruneReport) -> list[str]:
    return [verdict.document_id for verdict in report.verdicts if verdict.is_kept]


async def test_the_theme_stays_and_the_rest_goes(prune: Prune, question: str, observatory: Documents) -> None:
    report = await prune(question, observatory)
    assert kept(report) == ["point", "reflector"]
    assert {"Amberley", "Reflector"} <= set(report.theme)
    assert report.tokens_before == sum(len(document.text.split()) for document in observatory)
    assert report.tokens_after == sum(len(observatory[index].text.split()) for index in (1, 3))
    assert report.note == ""


async def test_every_verdict_is_explained_in_a_sentence(
    prune: Prune, question: str, observatory: Documents
) -> None:
    report = await prune(question, observatory)
    assert [verdict.document_id for verdict in report.verdicts] == [each.id for each in observatory]
    for verdict in report.verdicts:
        assert verdict.detail.endswith(".")
        assert 0.0 <= verdict.score <= 1.0
    by_id = {verdict.document_id: verdict for verdict in report.verdicts}
    assert by_id["point"].reason == "on_theme"
    assert "the question names its title" in by_id["point"].detail
    assert by_id["soup"].reason == "off_theme"
    assert by_id["point"].cluster == 0
    assert report.num_clusters > 1


async def test_a_second_request_is_served_from_the_cache(
    prune: Prune, question: str, observatory: Documents
) -> None:
    first = await prune(question, observatory)
    again = await prune(question, observatory)
    assert again.num_cache_hits == len(observatory) + 1
    assert again.encode_ms == 0.0
    assert again.verdicts == first.verdicts


async def test_chunks_without_titles_are_judged_by_their_text(
    prune: Prune, question: str, observatory: Documents
) -> None:
    report = await prune(question, [replace(document, title="") for document in observatory])
    assert {"point", "reflector"} <= set(kept(report))
    assert len(kept(report)) <= 4


async def test_embeddings_that_the_client_sends_are_used(
    pruner: Pruner, prune: Prune, question: str, observatory: Documents
) -> None:
    texts = [f"{document.title}. {document.text}" for document in observatory]
    encoded = await pruner.encoders.local.encode(texts)
    sent = [
        replace(document, embedding=tuple(encoding.vector.tolist()))
        for document, encoding in zip(observatory, encoded.encodings, strict=True)
    ]
    report = await prune(question, sent)
    assert kept(report) == ["point", "reflector"]
    assert report.note == ""
    assert report.num_cache_hits <= 1  # the question, and no chunk


async def test_embeddings_of_another_model_are_noticed_and_left(
    prune: Prune, question: str, observatory: Documents
) -> None:
    foreign = tuple(float(n % 7) for n in range(384))
    report = await prune(question, [replace(document, embedding=foreign) for document in observatory])
    assert kept(report) == ["point", "reflector"]
    assert "not the encoder's own" in report.note
    short = [replace(document, embedding=(1.0, 2.0)) for document in observatory]
    assert "another length" in (await prune(question, short)).note


async def test_without_an_encoder_everything_stays(tmp_path: Path, observatory: Documents) -> None:
    pruner = Pruner.open(EncoderSettings(model=str(tmp_path / "none")))
    report = await pruner.prune(PruneQuery("Anything?", observatory), PruneOptions(0.06), count_words)
    pruner.close()
    assert [verdict.reason for verdict in report.verdicts] == ["unpruned"] * len(observatory)
    assert all(verdict.is_kept for verdict in report.verdicts)
    assert "cannot be loaded" in report.note
    assert report.tokens_before == report.tokens_after > 0


async def test_an_encoder_that_takes_too_long_is_not_waited_for(observatory: Documents) -> None:
    pruner = Pruner.open(EncoderSettings(precision="fp32"), timeout_s=0.001)
    report = await pruner.prune(PruneQuery("Anything?", observatory), PruneOptions(0.06), count_words)
    pruner.close()
    assert {verdict.reason for verdict in report.verdicts} == {"unpruned"}
    assert "too long" in report.note


async def test_without_a_question_there_is_nothing_to_judge_against(
    prune: Prune, observatory: Documents
) -> None:
    report = await prune("  ", observatory)
    assert len(kept(report)) == len(observatory)
    assert "no question" in report.note


async def test_too_many_documents_are_not_judged(prune: Prune, question: str) -> None:
    report = await prune(question, [Document(f"d{n}", f"text {n}") for n in range(MAX_DOCUMENTS + 1)])
    assert len(kept(report)) == MAX_DOCUMENTS + 1
    assert "more than" in report.note


async def test_a_question_of_any_length_is_judged_by_its_beginning_and_end(
    prune: Prune, question: str, observatory: Documents
) -> None:
    padding = "Please read all of this with care before you say anything at all. " * 500
    report = await prune(padding + question, observatory)
    assert kept(report)
    assert set(kept(report)) <= {"point", "reflector"}


async def test_tokens_are_counted_as_the_document_stands_in_the_prompt(
    pruner: Pruner, question: str, observatory: Documents
) -> None:
    counted: list[str] = []

    async def count(texts: Sequence[str]) -> tuple[list[int], bool]:
        counted.extend(texts)
        return [1] * len(texts), True

    options = PruneOptions(0.06, template="<{id}> {text}")
    report = await pruner.prune(PruneQuery(question, observatory[:2]), options, count)
    assert counted == [f"<{document.id}> {document.text}\n\n" for document in observatory[:2]]
    assert report.tokens_before == 2
    assert report.are_tokens_estimated is True


async def test_where_nothing_can_be_judged_the_budget_holds_all_the_same(
    observatory: tuple[Document, ...],
) -> None:
    broken = Pruner.open(EncoderSettings(model="/no/such/encoder"))
    options = PruneOptions("balanced", token_budget=20)
    report = await broken.prune(PruneQuery("Anything?", observatory), options, count_words)
    broken.close()
    kept = [verdict for verdict in report.verdicts if verdict.is_kept]
    assert report.note.startswith("Not pruned: ")
    assert report.tokens_after == sum(verdict.num_tokens for verdict in kept) <= 20
    assert kept[0].document_id == observatory[0].id
    assert {verdict.reason for verdict in report.verdicts} == {"unpruned", "over_budget"}
