"""From a turn's record and trace to the case that a diagnosis looks at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from gateway.errors import TraceError
from gateway.lab.diagnosis.case import Answer, Case, ContextFacts
from gateway.store.document import CalibrationSection
from gateway.store.warnings import DEFAULT_TEMPERATURE
from gateway.trace.steps import ChoiceSteps
from worker.protocol import DecodeControls

Record = Mapping[str, Any]


def case_of(record: Record, choices: Sequence[ChoiceSteps]) -> Case:
    """Return the case of a record and its steps. Raises TraceError where the record lacks something."""
    try:
        return _case(record, choices)
    except (KeyError, TypeError, ValueError, AttributeError, ValidationError) as error:
        raise TraceError(f"the record of turn {record.get('id')!r} cannot be read: {error!r}") from error


def num_choices(record: Record) -> int:
    """Return how many choices have steps: a worker that is not ours writes none."""
    if record.get("environment", {}).get("worker", {}).get("level") == "opaque":
        return 0
    return max(int(record.get("upstream_body", {}).get("n") or 1), len(record["outcome"]["finish_reasons"]))


def _case(record: Record, choices: Sequence[ChoiceSteps]) -> Case:
    task: Mapping[str, Any] = record.get("task") or {}
    sent: Mapping[str, Any] = record.get("upstream_body") or {}
    calibration = task.get("calibration")
    temperature = sent.get("temperature")
    return Case(
        turn_id=record["id"],
        task=task.get("task_type", "default"),
        model=record["model"],
        controls=DecodeControls.model_validate(record["controls"]),
        temperature=DEFAULT_TEMPERATURE if temperature is None else float(temperature),
        max_tokens=sent.get("max_completion_tokens") or sent.get("max_tokens"),
        top_k=sent.get("top_k") if (sent.get("top_k") or 0) > 0 else None,
        answers=_answers(record, choices),
        context=_context(record, task),
        calibration=CalibrationSection.model_validate(calibration) if calibration else None,
        expected_s=record.get("expected_s"),
        status=record["outcome"]["status"],
        error_code=record["outcome"]["error_code"],
        completion_tokens=record["outcome"]["completion_tokens"],
        num_attempts=record["num_attempts"],
        requested=frozenset(_requested(record)),
        environment=record.get("environment", {}).get("worker", {}),
    )


def _answers(record: Record, choices: Sequence[ChoiceSteps]) -> tuple[Answer, ...]:
    """By their steps; where there are none (another server's answer), by how they ended."""
    if not choices:
        reasons = record["outcome"]["finish_reasons"]
        return tuple(Answer(choice, (), reason) for choice, reason in enumerate(reasons))
    return tuple(Answer(each.choice, each.steps, each.finish_reason) for each in choices)


def _context(record: Record, task: Mapping[str, Any]) -> ContextFacts:
    report = record["prune_report"]
    verdicts: Sequence[Mapping[str, Any]] = report["verdicts"]
    section: Mapping[str, Any] = task.get("context") or {}
    return ContextFacts(
        num_documents=len(verdicts),
        num_kept=sum(verdict["is_kept"] for verdict in verdicts),
        reasons=Counter(verdict["reason"] for verdict in verdicts),
        conflicts=tuple(conflict["detail"] or _pair(conflict) for conflict in report["conflicts"]),
        centres=tuple(tuple(centre["document_ids"]) for centre in report["centres"]),
        has_theme=bool(report["theme"]) or record["text_retention"] != "full",
        is_pruning=bool(section.get("pruning", True) and record["assignment"]["pruning"]),
        keep=section.get("keep", "balanced"),
        token_budget=section.get("token_budget"),
        tokens_before=report["tokens_before"],
        tokens_after=report["tokens_after"],
        note=report["note"],
    )


def _pair(conflict: Mapping[str, Any]) -> str:
    return f"{' and '.join(conflict['document_ids'])} say different things in one place"


def _requested(record: Record) -> Iterator[str]:
    yield from record.get("body", {})
    for name, value in (record.get("gravity_override") or {}).items():
        if not isinstance(value, Mapping):
            yield f"gravity.{name}"
            continue
        for inner in value:
            yield f"gravity.{name}.{inner}"
