"""Public reports about context pruning, as inputs: other projects' trouble, with the right outcome."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest

from gateway.context.render import arrange
from gateway.context.report import Document, PruneReport
from tests.pruning import Prune

QUESTION = "What powers the Gannet, and who built her?"
GANNET = Document(
    "gannet",
    "The Gannet is a harbour tug. She is powered by two hydrogen fuel cells and was launched in 2019.",
    "Gannet",
)
BUILDER = Document(
    "builder",
    "Trewin & Daughters built the Gannet at their slip in Polruan, and have built tugs since 1888.",
    "Trewin & Daughters",
)
OFF_THEME = (
    Document("bread", "Knead the dough for ten minutes and let it rise until it has doubled.", "Bread"),
    Document("chess", "White puts the bishop on f4 and the knight on f3.", "A chess opening"),
    Document("moss", "Moss grows where it is damp and shaded, on stone as well as on wood.", "Moss"),
    Document("invoice", "An invoice shows the date, the seller and the total.", "Invoices"),
)
SHUFFLED = (OFF_THEME[0], BUILDER, OFF_THEME[1], OFF_THEME[2], GANNET, OFF_THEME[3])


def kept(report: PruneReport) -> list[str]:
    return [verdict.document_id for verdict in report.verdicts if verdict.is_kept]


def reasons(report: PruneReport) -> dict[str, str]:
    return {verdict.document_id: verdict.reason for verdict in report.verdicts}


async def test_a_threshold_that_nothing_meets_leaves_the_best_chunk(prune: Prune) -> None:
    """langchain#7168, llama_index#724"""
    report = await prune(QUESTION, SHUFFLED, keep=1.0)
    assert len(kept(report)) == 1
    assert kept(report)[0] in {"gannet", "builder"}
    assert reasons(report)[kept(report)[0]] == "best_available"
    assert "a keep-probability of 1" in report.note


async def test_no_documents_are_served_without_context(prune: Prune) -> None:
    """langchain4j#770, langchain#5304"""
    assert await prune(QUESTION, ()) == PruneReport()


async def test_documents_without_text_are_dropped_with_the_reason(prune: Prune) -> None:
    """langchain4j#770, langchain#5304"""
    empty = (Document("blank", "  \n\t"), Document("nothing", "", "A title alone"))
    report = await prune(QUESTION, (*empty, GANNET))
    assert kept(report) == ["gannet"]
    assert reasons(report) == {"blank": "empty", "nothing": "empty", "gannet": "on_theme"}
    nothing_left = await prune(QUESTION, empty)
    assert kept(nothing_left) == []
    assert "without any" in nothing_left.note


@pytest.mark.parametrize("num_documents", [1, 2, 3])
async def test_fewer_documents_than_clusters_are_no_error(prune: Prune, num_documents: int) -> None:
    """Read in LangChain's source."""
    report = await prune(QUESTION, (GANNET, *OFF_THEME)[:num_documents])
    assert kept(report) == ["gannet"]
    assert report.num_clusters <= num_documents


async def test_of_identical_documents_the_earliest_stays(prune: Prune) -> None:
    """Read in LangChain's source."""
    copies = [Document(f"copy-{n}", GANNET.text, GANNET.title) for n in range(6)]
    report = await prune(QUESTION, copies)
    assert kept(report) == ["copy-0"]
    assert {verdict.duplicate_of for verdict in report.verdicts[1:]} == {"copy-0"}


async def test_metadata_is_not_touched_and_not_read(prune: Prune) -> None:
    """langchain#19142: what is kept is the document that was sent."""
    metadata: Mapping[str, Any] = MappingProxyType({"source": "x.pdf", "page": 3, "nested": {"a": [1]}})
    document = Document("gannet", GANNET.text, GANNET.title, metadata=metadata)
    documents = (*OFF_THEME, document)
    report = await prune(QUESTION, documents)
    by_id = {each.id: each for each in documents}
    assert by_id[kept(report)[0]].metadata is metadata
    assert metadata == {"source": "x.pdf", "page": 3, "nested": {"a": [1]}}


async def test_retriever_scores_missing_on_some_change_nothing(prune: Prune) -> None:
    """llama_index#12497"""
    scored = [
        Document(each.id, each.text, each.title, metadata={"score": 0.01 * n} if n % 2 else {})
        for n, each in enumerate(SHUFFLED)
    ]
    assert (await prune(QUESTION, scored)).verdicts == (await prune(QUESTION, SHUFFLED)).verdicts


async def test_scores_of_another_scale_are_not_thresholded(prune: Prune) -> None:
    """dify#35233: only our own calibrated probability is."""
    scored = [
        Document(each.id, each.text, each.title, metadata={"score": 1e6 if each in OFF_THEME else -5.0})
        for each in SHUFFLED
    ]
    report = await prune(QUESTION, scored)
    assert kept(report) == ["builder", "gannet"]
    assert all(0.0 <= verdict.score <= 1.0 for verdict in report.verdicts)


async def test_kept_chunks_stand_in_the_order_they_were_sent(prune: Prune) -> None:
    """llama_index PR22354: never shuffled by score."""
    report = await prune(QUESTION, SHUFFLED)
    assert [verdict.document_id for verdict in report.verdicts] == [each.id for each in SHUFFLED]
    assert kept(report) == ["builder", "gannet"]
    assert arrange([0.1, 0.9], "as_sent") == [0, 1]


async def test_a_token_budget_is_never_exceeded_and_smaller_chunks_still_fit(prune: Prune) -> None:
    """openrag#851, agentmemory#1232, lilbee PR837"""
    long = Document("long", "The Gannet is powered by two fuel cells. She tows barges. " * 40, "The Gannet")
    sizes = {each.id: len(each.text.split()) for each in (GANNET, BUILDER)}
    budget = sizes["gannet"] + sizes["builder"]
    report = await prune(QUESTION, (long, *OFF_THEME, GANNET, BUILDER), token_budget=budget)
    assert report.tokens_after <= budget
    assert set(kept(report)) == {"gannet", "builder"}
    assert reasons(report)["long"] == "over_budget"
    assert str(budget) in report.verdicts[0].detail


async def test_a_copy_that_fits_takes_the_place_of_what_it_repeats(prune: Prune) -> None:
    """openrag#851: the chunk that does not fit must not take its shorter copy with it."""
    long = Document("long", GANNET.text + " She tows barges in all weathers, day and night." * 40, "Gannet")
    budget = len(GANNET.text.split())
    report = await prune(QUESTION, (long, *OFF_THEME, GANNET), token_budget=budget)
    assert kept(report) == ["gannet"]
    assert reasons(report)["long"] == "over_budget"
    assert reasons(await prune(QUESTION, (long, *OFF_THEME, GANNET)))["gannet"] == "duplicate"


async def test_where_nothing_fits_the_budget_nothing_is_sent(prune: Prune) -> None:
    """openrag#851: a budget guards the model's context, so it wins over "never fewer than one"."""
    report = await prune(QUESTION, (GANNET, BUILDER), token_budget=3)
    assert kept(report) == []
    assert report.tokens_after == 0
    assert "budget of 3" in report.note


@pytest.mark.parametrize(
    "text",
    [
        "港口拖船由两个氢燃料电池驱动，于2019年下水。",
        "このタグボートは水素燃料電池で動きます。",
        "Буксир работает на водороде.",
    ],
)
async def test_scripts_that_the_encoder_cannot_read_are_kept(prune: Prune, text: str) -> None:
    """LLMLingua#4, #63: not garbled, not treated as off the theme for their script."""
    foreign = Document("foreign", text)
    report = await prune(QUESTION, (*OFF_THEME, foreign, GANNET))
    assert kept(report) == ["foreign", "gannet"]
    assert reasons(report)["foreign"] == "not_judged"
    asked = await prune("拖船由什么驱动？", (GANNET, foreign, *OFF_THEME))
    assert set(reasons(asked).values()) == {"not_judged"}
    assert "script" in asked.note


async def test_a_chunk_of_50000_characters_is_judged_by_its_parts(prune: Prune) -> None:
    """text-embeddings-inference#356: not by its first 256 tokens."""
    filler = "Knead the dough, let it rise, fold it twice and bake it until the crust is dark. "
    half = filler * (25_000 // len(filler))
    long = Document("long", f"{half} {GANNET.text} {half}")
    assert len(long.text) > 49_000
    report = await prune(QUESTION, (*OFF_THEME[1:], long))
    assert kept(report) == ["long"]
    without = Document("without", half[:5_000])
    assert kept(await prune(QUESTION, (*OFF_THEME[1:], without, GANNET))) == ["gannet"]


async def test_chunks_that_are_needed_together_stay_together(prune: Prune) -> None:
    """openrag#751: the second chunk is far from the question and hangs on the first by its title."""
    question = "In which town was the composer of the Saltmarsh Suite born?"
    suite = Document(
        "suite",
        "The Saltmarsh Suite for strings was written by Ida Penhallow in one winter.",
        "Saltmarsh Suite",
    )
    composer = Document(
        "penhallow",
        "Ida Penhallow grew up among fishermen; she came into the world in Mousehole.",
        "Ida Penhallow",
    )
    report = await prune(question, (*OFF_THEME[:2], composer, *OFF_THEME[2:], suite))
    assert kept(report) == ["penhallow", "suite"]
    alone = await prune(question, (*OFF_THEME, composer))
    with_suite = {verdict.document_id: verdict.score for verdict in report.verdicts}
    without = {verdict.document_id: verdict.score for verdict in alone.verdicts}
    assert with_suite["penhallow"] > without["penhallow"]


async def test_a_question_that_no_chunk_is_about_has_no_theme(prune: Prune) -> None:
    """pgedge-rag-server#9: few chunks, and the report says so."""
    report = await prune("How do I renew my passport at the embassy in Lima?", SHUFFLED)
    assert report.theme == ()
    assert len(kept(report)) == 1
    assert set(reasons(report).values()) == {"best_available", "off_theme"}
    assert report.note


async def test_near_duplicates_leave_the_earliest(prune: Prune) -> None:
    """Measured: a sentence dropped, a prefix added; found by 3-grams, not by cosine."""
    shorter = Document("shorter", GANNET.text.replace("The Gannet is a harbour tug. ", ""), "Gannet (mirror)")
    prefixed = Document("prefixed", "Updated on Monday. " + GANNET.text, "Gannet")
    report = await prune(QUESTION, (GANNET, BUILDER, shorter, prefixed))
    assert kept(report) == ["gannet", "builder"]
    assert reasons(report)["shorter"] == reasons(report)["prefixed"] == "duplicate"
    assert report.verdicts[2].duplicate_of == report.verdicts[3].duplicate_of == "gannet"


async def test_chunks_that_contradict_each_other_in_one_number_both_stay(prune: Prune) -> None:
    """Measured: a quarter of such pairs have a cosine of .95 and more."""
    other = Document("other", GANNET.text.replace("2019", "2021"), "Gannet")
    report = await prune(QUESTION, (GANNET, *OFF_THEME, other))
    assert kept(report) == ["gannet", "other"]
    (conflict,) = report.conflicts
    assert (conflict.document_ids, conflict.spans) == (("gannet", "other"), ("2019", "2021"))
    assert conflict.detail
    assert (await prune(QUESTION, (GANNET, *OFF_THEME, BUILDER))).conflicts == ()
