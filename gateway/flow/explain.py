"""The answer's extra object ``gravity``: what was done to the request, and at the end what came of it."""

from __future__ import annotations

from typing import Any

from gateway.context.report import Document, Verdict
from gateway.flow.turn import Outcome, Turn


def opening(turn: Turn) -> dict[str, Any]:
    """What is known before the first token."""
    report = turn.prune_report
    documents = {document.id: document for document in turn.documents}
    return {
        "turn_id": turn.id,
        "lane": turn.assignment.lane,
        "lane_reason": turn.assignment.reason,
        "experiment": turn.assignment.experiment or None,
        "task": turn.task.task_type if turn.task else None,
        "config_sha": turn.config_sha,
        "theme": list(report.theme) or None,
        "documents": [_document(verdict, documents.get(verdict.document_id)) for verdict in report.verdicts],
        "tokens_before": report.tokens_before,
        "tokens_after": report.tokens_after,
        "are_tokens_estimated": report.are_tokens_estimated,
        "note": report.note,
        "bucket": turn.bucket,
        "expected_s": turn.expected_s,
        "worker": turn.worker,
        "warnings": list(turn.warnings),
    }


def closing(outcome: Outcome) -> dict[str, Any]:
    """What the worker measured. Null where it measures nothing (an opaque worker)."""
    return {
        "mean_entropy_nats": outcome.mean_entropy_nats,
        "mean_gravity": outcome.mean_gravity,
        "entropic_time_nats": outcome.entropic_time_nats,
        "net_drop_nats": outcome.net_drop_nats,
        "envelope_nats": outcome.envelope_nats,
        "seed": outcome.seed,
    }


def _document(verdict: Verdict, document: Document | None) -> dict[str, Any]:
    told = {
        "id": verdict.document_id,
        "kept": verdict.is_kept,
        "reason": verdict.reason,
        "score": verdict.score,
        "tokens": verdict.num_tokens,
        "cluster": verdict.cluster,
        "duplicate_of": verdict.duplicate_of,
        "detail": verdict.detail,
    }
    if document is not None and verdict.is_kept:
        # langchain#19142: metadata comes back untouched on what is kept.
        told |= {"title": document.title, "metadata": dict(document.metadata)}
    return told
