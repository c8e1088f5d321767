"""From what was weighed to the report: verdicts, theme, sums, and a note where less was done than asked."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from gateway.context import verdicts
from gateway.context.centres import find_centres
from gateway.context.conflicts import find_conflicts
from gateway.context.encoders import EncoderChoice
from gateway.context.judge import NOTHING_SORTED, Judgement, Sorting
from gateway.context.report import Centre, Conflict, Document, PruneReport, Verdict
from gateway.context.selector import Keep
from gateway.context.themes import theme_words

TokenCounts: TypeAlias = tuple[list[int], bool]
"""(counts, are_estimated)"""

MAX_THEME_WORDS = 24


@dataclass(frozen=True, slots=True)
class PruneQuery:
    """What is to be judged, and against what."""

    question: str
    documents: tuple[Document, ...]
    history: tuple[str, ...] = ()
    """The conversation's earlier texts, oldest first: what an elliptical question is about."""


@dataclass(frozen=True, slots=True)
class PruneOptions:
    """What the task asks for."""

    keep: Keep = "balanced"
    token_budget: int | None = None
    """The kept documents' tokens never exceed it."""
    template: str = "{text}"
    """How a document stands in the prompt, for its tokens; see ``render_document``."""
    encoder: EncoderChoice = "auto"


@dataclass(frozen=True, slots=True)
class Weighed:
    """What encoding and judging gave; the judgement is None where there was nothing to judge."""

    sorting: Sorting
    judgement: Judgement | None
    encode_ms: float = 0.0
    judge_ms: float = 0.0
    num_cache_hits: int = 0
    note: str = ""


def unpruned_report(
    documents: Sequence[Document], counts: TokenCounts, why: str, note: str = ""
) -> PruneReport:
    """Keep everything, because of ``why``."""
    tokens, are_estimated = counts
    return PruneReport(
        verdicts=verdicts.unpruned(documents, tokens, why),
        tokens_before=sum(tokens),
        tokens_after=sum(tokens),
        are_tokens_estimated=are_estimated,
        note=note,
    )


def fallback_report(
    documents: Sequence[Document], options: PruneOptions, counts: TokenCounts, why: str
) -> PruneReport:
    """Keep what fits the budget, in the order sent, where nothing could be judged because of ``why``."""
    report = unpruned_report(documents, counts, why, note=why)
    decided = verdicts.budgeted(report.verdicts, NOTHING_SORTED, options.token_budget)
    kept_tokens = sum(verdict.num_tokens for verdict in decided if verdict.is_kept)
    return replace(report, verdicts=tuple(decided), tokens_after=kept_tokens)


def pruned_report(
    query: PruneQuery, options: PruneOptions, weighed: Weighed, counts: TokenCounts
) -> PruneReport:
    """Decide about every document of ``query``."""
    started = time.perf_counter()
    tokens, are_estimated = counts
    decided = verdicts.unjudged(query.documents, weighed.sorting, tokens)
    if weighed.judgement is not None:
        decided = verdicts.judged(decided, weighed.judgement, query.question, options.keep)
    decided = verdicts.budgeted(decided, weighed.sorting, options.token_budget)
    return PruneReport(
        verdicts=tuple(decided),
        theme=_theme(query, weighed.judgement, decided),
        num_clusters=len({verdict.cluster for verdict in decided if verdict.cluster >= 0}),
        centres=_centres(weighed.judgement, decided),
        conflicts=_conflicts(query, decided),
        tokens_before=sum(tokens),
        tokens_after=sum(verdict.num_tokens for verdict in decided if verdict.is_kept),
        are_tokens_estimated=are_estimated,
        encode_ms=weighed.encode_ms,
        select_ms=weighed.judge_ms + (time.perf_counter() - started) * 1e3,
        num_cache_hits=weighed.num_cache_hits,
        note=" ".join(filter(None, [weighed.note, _note(weighed, decided, options)])),
    )


def _theme(query: PruneQuery, judgement: Judgement | None, decided: Sequence[Verdict]) -> tuple[str, ...]:
    """Return the words that name the theme; none where no document is about the question."""
    if judgement is None or not judgement.has_theme:
        return ()
    judged = (*judgement.sorting.judged, *judgement.sorting.copies)
    pairs = [(query.documents[index], decided[index]) for index in judged]
    kept = [(f"{each.title} {each.text}", verdict.score) for each, verdict in pairs if verdict.is_kept]
    dropped = [f"{each.title} {each.text}" for each, verdict in pairs if not verdict.is_kept]
    texts, scores = [text for text, _ in kept], [score for _, score in kept]
    return theme_words(query.question, texts, scores, dropped, MAX_THEME_WORDS)


def _centres(judgement: Judgement | None, decided: Sequence[Verdict]) -> tuple[Centre, ...]:
    """Look for several centres among the documents that were judged and kept."""
    if judgement is None:
        return ()
    kept = [place for place, index in enumerate(judgement.sorting.judged) if decided[index].is_kept]
    return find_centres(judgement, kept)


def _conflicts(query: PruneQuery, decided: Sequence[Verdict]) -> tuple[Conflict, ...]:
    kept = [each for each, verdict in zip(query.documents, decided, strict=True) if verdict.is_kept]
    return tuple(found.between(kept) for found in find_conflicts(kept))


def _called(keep: Keep) -> str:
    return f"the setting {keep!r}" if isinstance(keep, str) else f"a keep-probability of {keep:g}"


def _note(weighed: Weighed, decided: Sequence[Verdict], options: PruneOptions) -> str:
    """Say in a sentence where the outcome is not what the settings ask for; empty where it is."""
    if not any(verdict.is_kept for verdict in decided):
        if any(verdict.reason == "over_budget" for verdict in decided):
            budget = options.token_budget
            return f"No document fits the budget of {budget} tokens; the request goes on without any."
        return "No document has text; the request goes on without any."
    if weighed.judgement is None:
        return "The encoder cannot read the script of the question or of the documents; nothing was judged."
    if (weighed.judgement.probability < weighed.judgement.needed(options.keep)).all():
        return f"No document reached what {_called(options.keep)} asks for; the best one was kept."
    if not weighed.judgement.has_theme:
        return "No document is clearly about the question."
    return ""
