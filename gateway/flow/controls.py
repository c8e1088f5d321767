"""What a task and a request together tell the worker: from configuration words to the wire's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from gateway.errors import InvalidRequest
from gateway.store.document import TaskDocument
from gateway.store.editing import nulls_of_no_field
from gateway.store.lineage import laid_over
from worker.protocol import (
    Calibration,
    DecodeControls,
    GravityControls,
    KVBlockControls,
    SpeculationControls,
    TemperatureControls,
    TraceControls,
)

_MAX_WORD_LENGTH = 100
_STEADY = TemperatureControls()


def overridden(task: TaskDocument, override: Mapping[str, Any]) -> TaskDocument:
    """Return ``task`` with a request's own values in place of its own, section by section.

    Raises InvalidRequest where the two together make no valid task.
    """
    if not override:
        return task
    for path in nulls_of_no_field(override, TaskDocument):
        raise InvalidRequest(f"gravity: there is no field {'.'.join(path)!r}", param="gravity")
    merged = laid_over(task.model_dump(mode="json", exclude_unset=True), override)
    try:
        return TaskDocument.model_validate(merged)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        message = first["msg"].removeprefix("Value error, ")
        raise InvalidRequest(f"gravity: {message}", param="gravity") from None


def build_controls(task: TaskDocument, theme: Iterable[str], trace: TraceControls) -> DecodeControls:
    """Return the controls of ``task``; the first ``theme_keywords`` words of ``theme`` join its own."""
    is_steady = task.temperature == _STEADY
    return DecodeControls(
        adaptive=task.adaptive,
        gravity=_gravity(task, theme),
        temperature=None if is_steady else task.temperature,
        calibration=_calibration(task),
        speculation=_speculation(task),
        kv_blocks=_kv_blocks(task),
        trace=trace,
    )


def plain_controls(task: TaskDocument, trace: TraceControls) -> DecodeControls:
    """Return controls that steer nothing: the steps are measured and written all the same."""
    return DecodeControls(speculation=_speculation(task), trace=trace)


def calibration_warnings(task: TaskDocument, model: str, temperature: float) -> tuple[str, ...]:
    """Say where a request leaves what the task's entropies were measured at; H moves with both."""
    if task.calibration is None or task.adaptive is None:
        return ()
    warnings = []
    measured = task.calibration
    if measured.model != model:
        warnings.append(f"The task {task.task_type!r} was calibrated with the model {measured.model!r}.")
    if abs(measured.temperature - temperature) > 1e-9:
        warnings.append(
            f"The task {task.task_type!r} was calibrated at temperature {measured.temperature:g}; "
            f"the request's is {temperature:g}."
        )
    return tuple(warnings)


def _gravity(task: TaskDocument, theme: Iterable[str]) -> GravityControls | None:
    section = task.gravity
    if task.gravity_strength == 0.0:
        return None
    known = {word.lower() for word in (*task.core_semantics, *task.penalize)}
    fitting = [word for word in theme if word.lower() not in known and len(word) <= _MAX_WORD_LENGTH]
    keywords = (*task.core_semantics, *fitting[: section.theme_keywords])
    if not (keywords or task.penalize or section.vector):
        return None
    return GravityControls(
        strength=task.gravity_strength,
        keywords=keywords,
        penalize=task.penalize,
        boost_weight=section.boost_weight,
        penalty_weight=section.penalty_weight,
        mode=section.mode,
        plausible=section.plausible,
        max_bias_nats=section.max_bias_nats,
        vector=section.vector,
        decay=section.decay,
        decay_after_steps=task.decay_after_steps,
        half_life_steps=section.half_life_steps,
        stages=section.stages,
        drift=section.drift,
        repetition_brake=section.repetition_brake,
    )


def _speculation(task: TaskDocument) -> SpeculationControls | None:
    return None if task.speculation.mode == "off" else task.speculation


def _kv_blocks(task: TaskDocument) -> KVBlockControls | None:
    return None if task.kv_blocks.mode == "off" else task.kv_blocks


def _calibration(task: TaskDocument) -> Calibration | None:
    measured = task.calibration
    return Calibration(model=measured.model, temperature=measured.temperature) if measured else None
