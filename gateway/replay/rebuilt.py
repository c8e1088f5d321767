"""A recorded turn as the stages know it, taken back to where the client's request stood."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic import TypeAdapter, ValidationError

from gateway.context.report import PruneReport
from gateway.errors import ReplayError
from gateway.flow.turn import Turn

_TURN = TypeAdapter(Turn)


def rebuilt_turn(record: Mapping[str, Any]) -> Turn:
    """Return the turn of ``ng:turn:ID``. Its task is only named: what it said is not needed, and may be old.

    Raises ReplayError where the record cannot be read.
    """
    task = record.get("task") or {"task_type": "default"}
    fields = dict(record) | {"task": {"task_type": task["task_type"]}}
    try:
        return _TURN.validate_python(fields)
    except ValidationError as error:
        raise ReplayError(f"its record cannot be read: {error}") from error


def why_not(turn: Turn, text_retention: str) -> str | None:
    """Return why another configuration cannot be tried on this turn; None where it can."""
    if text_retention != "full" or not ("messages" in turn.upstream_body or "prompt" in turn.upstream_body):
        return f"its text was not kept ({text_retention})"
    if turn.shadow_of:
        return "it is a shadow of another turn"
    if turn.outcome.status == "cancelled":
        return "it was cancelled"
    if turn.outcome.status == "error":
        return "it failed"
    return None


def as_received(turn: Turn) -> Turn:
    """Return the turn without what the stages made of it; task, lane and seed stay."""
    return replace(turn, prune_report=PruneReport(), warnings=(), upstream_body={})
