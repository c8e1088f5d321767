"""A finished turn in OpenTelemetry's words, and in ours under ``gravity.``. Texts where they may be told."""

from __future__ import annotations

from typing import Any

import orjson

from gateway.flow.turn import Turn
from gateway.telemetry import genai
from gateway.telemetry.spans import Attribute, TurnFacts

CANCELLED = "cancelled"
MAX_TEXT_CHARS = 65_536
"""Of an attribute that holds a prompt or an answer."""


def facts_of(turn: Turn, *, has_prompt_text: bool) -> TurnFacts:
    """Return what a turn's span and the metrics are told at its end."""
    outcome = turn.outcome
    operation = genai.OPERATIONS[turn.endpoint]
    attributes = _genai(turn, operation) | _gravity(turn)
    if has_prompt_text:
        attributes |= _texts(turn)
    later_s = None
    if outcome.time_to_first_token_s is not None and outcome.completion_tokens > 1:
        later_s = (outcome.latency_s - outcome.time_to_first_token_s) / (outcome.completion_tokens - 1)
    return TurnFacts(
        operation=operation,
        model=turn.model,
        attributes={name: value for name, value in attributes.items() if value is not None},
        error_code=CANCELLED if outcome.status == "cancelled" else outcome.error_code,
        latency_s=outcome.latency_s,
        first_token_s=outcome.time_to_first_token_s,
        later_token_s=later_s,
        input_tokens=outcome.prompt_tokens,
        output_tokens=outcome.completion_tokens,
    )


def _genai(turn: Turn, operation: str) -> dict[str, Attribute | None]:
    body, outcome = turn.upstream_body or turn.body, turn.outcome
    limit = body.get("max_tokens") or body.get("max_completion_tokens")
    return {
        genai.OPERATION_NAME: operation,
        genai.PROVIDER_NAME: genai.PROVIDER,
        genai.REQUEST_MODEL: turn.model,
        genai.REQUEST_TEMPERATURE: body.get("temperature"),
        genai.REQUEST_TOP_P: body.get("top_p"),
        genai.REQUEST_MAX_TOKENS: limit,
        genai.INPUT_TOKENS: outcome.prompt_tokens,
        genai.OUTPUT_TOKENS: outcome.completion_tokens,
        genai.FINISH_REASONS: list(outcome.finish_reasons) or None,
    }


def _gravity(turn: Turn) -> dict[str, Attribute | None]:
    outcome, report = turn.outcome, turn.prune_report
    return {
        "gravity.turn_id": turn.id,
        "gravity.status": outcome.status,
        "gravity.task": turn.task.task_type if turn.task else None,
        "gravity.lane": turn.assignment.lane,
        "gravity.experiment": turn.assignment.experiment or None,
        "gravity.config_sha": turn.config_sha or None,
        "gravity.bucket": turn.bucket,
        "gravity.worker": turn.worker or None,
        "gravity.num_attempts": turn.num_attempts,
        "gravity.shadow_of": turn.shadow_of or None,
        "gravity.documents_kept": sum(verdict.is_kept for verdict in report.verdicts),
        "gravity.documents_dropped": sum(not verdict.is_kept for verdict in report.verdicts),
        "gravity.tokens_before": report.tokens_before,
        "gravity.tokens_after": report.tokens_after,
        "gravity.mean_entropy_nats": outcome.mean_entropy_nats,
        "gravity.mean_gravity": outcome.mean_gravity,
        "gravity.entropic_time_nats": outcome.entropic_time_nats,
        "gravity.is_estimated": outcome.is_estimated or None,
    }


def _texts(turn: Turn) -> dict[str, Attribute | None]:
    asked: Any = turn.upstream_body.get("messages") or turn.upstream_body.get("prompt")
    return {
        genai.INPUT_MESSAGES: orjson.dumps(asked).decode()[:MAX_TEXT_CHARS] if asked else None,
        genai.OUTPUT_MESSAGES: turn.outcome.text[:MAX_TEXT_CHARS] or None,
    }
