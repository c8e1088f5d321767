"""The answer's extra object ``gravity``: what was done to the request, and at the end what came of it."""

from __future__ import annotations

from typing import Any

from gateway.context.report import Document, PruneReport, Verdict
from gateway.flow.turn import Outcome, Turn


def opening(turn: Turn) -> dict[str, Any]:
    """What is known before the first token."""
    return {
        "turn_id": turn.id,
        "lane": turn.assignment.lane,
        "lane_reason": turn.assignment.reason,
        "experiment": turn.assignment.experiment or None,
        "task": turn.task.task_type if turn.task else None,
        "config_sha": turn.config_sha,
        "documents": [
            _document(document, verdict)
            for document, verdict in zip(turn.documents, turn.prune_report.verdicts, strict=True)
        ],
        **pruning(turn.prune_report),
        "shed": list(turn.shed),
        "bucket": turn.bucket,
        "expected_s": turn.expected_s,
        "worker": turn.worker,
        "bucket_pool": turn.bucket_pool,
        "warnings": list(turn.warnings),
    }


def closing(outcome: Outcome) -> dict[str, Any]:
    """What the worker measured, or what was estimated of it. Null where it shows nothing."""
    estimated = {
        "is_estimated": True,
        "mean_entropy_half_width_nats": outcome.mean_entropy_half_width_nats,
        "mean_gravity_half_width": outcome.mean_gravity_half_width,
        "entropic_time_half_width_nats": outcome.entropic_time_half_width_nats,
    }
    narrowed = {} if outcome.mean_kept_share is None else {"mean_kept_share": outcome.mean_kept_share}
    return (
        (estimated if outcome.is_estimated else {})
        | narrowed
        | {
            "mean_entropy_nats": outcome.mean_entropy_nats,
            "mean_gravity": outcome.mean_gravity,
            "entropic_time_nats": outcome.entropic_time_nats,
            "net_drop_nats": outcome.net_drop_nats,
            "envelope_nats": outcome.envelope_nats,
            "nats_per_gmac": outcome.nats_per_gmac,
            "cached_prompt_tokens": outcome.cached_prompt_tokens,
            "seed": outcome.seed,
        }
    )


def pruning(report: PruneReport) -> dict[str, Any]:
    """What pruning found, and what it comes to, beside the verdicts."""
    return {
        "theme": list(report.theme) or None,
        "conflicts": [
            {"documents": conflict.document_ids, "spans": conflict.spans, "detail": conflict.detail}
            for conflict in report.conflicts
        ],
        "centres": [{"documents": centre.document_ids, "theme": centre.theme} for centre in report.centres],
        "tokens_before": report.tokens_before,
        "tokens_after": report.tokens_after,
        "are_tokens_estimated": report.are_tokens_estimated,
        "note": report.note,
    }


def verdict_on(verdict: Verdict) -> dict[str, Any]:
    """One document's verdict."""
    return {
        "id": verdict.document_id,
        "kept": verdict.is_kept,
        "reason": verdict.reason,
        "score": verdict.score,
        "tokens": verdict.num_tokens,
        "cluster": verdict.cluster,
        "duplicate_of": verdict.duplicate_of,
        "detail": verdict.detail,
    }


def _document(document: Document, verdict: Verdict) -> dict[str, Any]:
    told = verdict_on(verdict)
    if verdict.is_kept:
        # langchain#19142: metadata comes back untouched on what is kept.
        told |= {"title": document.title, "metadata": dict(document.metadata)}
    return told
