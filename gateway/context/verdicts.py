"""The verdict on every document, each with a sentence that a person understands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from gateway.context.judge import Judgement, Sorting
from gateway.context.links import explain_link
from gateway.context.report import Document, Verdict
from gateway.context.select import meet, within_budget
from gateway.context.selector import Keep
from gateway.context.words import content_words

UNKNOWN_SCORE = 0.5
"""Of what the encoder cannot judge: behind what is surely on the theme, before what is surely not."""


def unpruned(documents: Sequence[Document], tokens: Sequence[int], why: str) -> tuple[Verdict, ...]:
    """Keep everything as it was sent, because of ``why``."""
    return tuple(
        Verdict(document.id, True, "unpruned", 1.0, num_tokens, detail=why)
        for document, num_tokens in zip(documents, tokens, strict=True)
    )


def unjudged(documents: Sequence[Document], sorting: Sorting, tokens: Sequence[int]) -> list[Verdict]:
    """Return a verdict a document from what ``sorting`` alone tells; what was judged is kept for now."""
    verdicts = []
    for index, document in enumerate(documents):
        verdict = Verdict(document.id, True, "not_judged", UNKNOWN_SCORE, tokens[index])
        if index in sorting.empty:
            verdict = replace(verdict, is_kept=False, reason="empty", score=0.0, detail="It has no text.")
        elif index in sorting.copies:
            original = documents[sorting.copies[index]].id
            detail = f"It repeats {original}, which came earlier."
            verdict = replace(
                verdict, is_kept=False, reason="duplicate", duplicate_of=original, detail=detail
            )
        elif index in sorting.unjudged:
            detail = "The encoder cannot read its script or the question's, so it was not judged."
            verdict = replace(verdict, detail=detail)
        verdicts.append(verdict)
    return verdicts


def judged(verdicts: Sequence[Verdict], judgement: Judgement, question: str, keep: Keep) -> list[Verdict]:
    """Put the judgement's outcome into ``verdicts``, which are in the order of the documents."""
    updated = list(verdicts)
    needed = judgement.needed(keep)
    keeps = meet(judgement.probability, needed)
    for position, index in enumerate(judgement.sorting.judged):
        verdict = replace(
            updated[index],
            score=round(float(judgement.probability[position]), 4),
            cluster=judgement.clusters[position],
        )
        if keeps[position]:
            updated[index] = _kept(verdict, judgement, position, question, needed, keeps)
        else:
            detail = (
                f"It has little in common with the question ({_evidence(judgement, position, question)})."
            )
            updated[index] = replace(verdict, is_kept=False, reason="off_theme", detail=detail)
    for copy, original in judgement.sorting.copies.items():
        updated[copy] = replace(
            updated[copy], score=updated[original].score, cluster=updated[original].cluster
        )
    return updated


def budgeted(verdicts: Sequence[Verdict], sorting: Sorting, budget: int | None) -> list[Verdict]:
    """Drop what does not fit ``budget`` tokens, the least wanted first; a shorter copy may stay instead."""
    if budget is None:
        return list(verdicts)
    wanted: dict[int, list[int]] = {index: [] for index, verdict in enumerate(verdicts) if verdict.is_kept}
    for copy, original in sorting.copies.items():
        if original in wanted:
            wanted[original].append(copy)
    scores = [verdict.score for verdict in verdicts]
    tokens = [verdict.num_tokens for verdict in verdicts]
    fitting = within_budget(wanted, scores, tokens, budget)
    left = budget - sum(tokens[index] for index in fitting)
    updated = list(verdicts)
    for index in wanted.keys() - fitting:
        updated[index] = _over_budget(verdicts[index], left, budget)
    for index in fitting - wanted.keys():
        repeated = verdicts[sorting.copies[index]]
        detail = f"It repeats {repeated.document_id}, which does not fit the budget."
        updated[index] = replace(
            verdicts[index], is_kept=True, reason=repeated.reason, duplicate_of=None, detail=detail
        )
    return updated


def _over_budget(verdict: Verdict, left: int, budget: int) -> Verdict:
    detail = f"It needs {verdict.num_tokens} tokens; {left} of the budget of {budget} are left."
    return replace(verdict, is_kept=False, reason="over_budget", detail=detail)


def _kept(
    verdict: Verdict,
    judgement: Judgement,
    position: int,
    question: str,
    needed: NDArray[np.float64],
    keeps: NDArray[np.bool_],
) -> Verdict:
    evidence = _evidence(judgement, position, question)
    if judgement.probability[position] < needed[position]:
        detail = f"Nothing reached what is asked for; this comes nearest ({evidence})."
        return replace(verdict, reason="best_available", detail=detail)
    if not judgement.has_theme:
        detail = f"No document is clearly about the question; this is among the nearest ({evidence})."
        return replace(verdict, reason="best_available", detail=detail)
    if judgement.unlinked[position] < needed[position]:
        others = [int(other) for other in np.flatnonzero(keeps) if other != position]
        if tie := explain_link(judgement.graph, judgement.documents, position, others):
            return replace(verdict, reason="linked", detail=tie)
    return replace(verdict, reason="on_theme", detail=f"It is about the question ({evidence}).")


def _evidence(judgement: Judgement, position: int, question: str) -> str:
    """Name the words that question and document share, and their similarity."""
    document = judgement.documents[position]
    similarity = f"similarity {judgement.signals.dense[position]:.2f}"
    if judgement.signals.title_named[position]:
        return f"the question names its title, {similarity}"
    here = set(content_words(f"{document.title} {document.text}"))
    shared = [word for word in dict.fromkeys(content_words(question)) if word in here]
    if not shared:
        return f"no word in common, {similarity}"
    return f"both have {', '.join(map(repr, shared[:4]))}; {similarity}"
