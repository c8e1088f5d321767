"""Stage 4: what goes to the worker: the kept documents before the question, the controls, the defaults.

What the client wrote stays as it was. docs/decisions/ says why the documents go where they do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gateway.context.render import SEPARATOR, kept_in_order, render_document
from gateway.context.report import Document, PruneReport
from gateway.flow.controls import (
    build_controls,
    calibration_warnings,
    overridden,
    plain_controls,
)
from gateway.flow.turn import Turn
from gateway.store.document import ContextSection, SamplingSection, TaskDocument
from gateway.store.warnings import DEFAULT_TEMPERATURE
from worker.protocol import TraceControls

if TYPE_CHECKING:
    from gateway.flow.deps import Deps

TOKEN_PROMPT = "The documents were left out: they cannot stand before a prompt of token ids."
_OWN_FIELDS = frozenset({"documents", "task", "gravity"})
_LIMITS = frozenset({"max_tokens", "max_completion_tokens"})


async def shape(turn: Turn, deps: Deps) -> Turn:
    """Fix the body and the controls. Raises InvalidRequest where the request's ``gravity`` fits no task."""
    task = overridden(turn.task or TaskDocument(task_type="default"), turn.gravity_override)
    body = {name: value for name, value in turn.body.items() if name not in _OWN_FIELDS}
    body |= _defaults(task.sampling, body)
    warnings: tuple[str, ...] = ()
    context = render_context(turn.documents, turn.prune_report, task.context)
    if context:
        body, warnings = _with_context(body, context)
    # Token ids are readable text to whoever has the tokenizer.
    trace = TraceControls(turn_id=turn.id, has_tokens=deps.settings.text_retention == "full")
    if not turn.assignment.gravity:
        controls = plain_controls(task, trace)
    else:
        controls = build_controls(task, turn.prune_report.theme, trace)
        temperature = body.get("temperature")
        at = DEFAULT_TEMPERATURE if temperature is None else float(temperature)
        warnings += calibration_warnings(task, turn.model, at)
    return turn.grown(task=task, controls=controls, upstream_body=body, warnings=(*turn.warnings, *warnings))


def render_context(documents: Sequence[Document], report: PruneReport, context: ContextSection) -> str:
    """Return the kept documents as they stand in the prompt, in the task's order; empty without any."""
    texts = [
        render_document(documents[index], context.template)
        for index in kept_in_order(report.verdicts, context.order)
    ]
    if not texts:
        return ""
    return SEPARATOR.join([context.preamble, *texts] if context.preamble else texts)


def _with_context(body: dict[str, Any], context: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Put ``context`` before what is asked; a warning where it has no place there."""
    if "messages" in body:
        return {**body, "messages": before_question(body["messages"], context)}, ()
    prompt = body.get("prompt")
    if isinstance(prompt, str):
        return {**body, "prompt": context + SEPARATOR + prompt}, ()
    if isinstance(prompt, list) and all(isinstance(each, str) for each in prompt):
        return {**body, "prompt": [context + SEPARATOR + each for each in prompt]}, ()
    return body, (TOKEN_PROMPT,)


def before_question(messages: Sequence[Mapping[str, Any]], context: str) -> list[Mapping[str, Any]]:
    """Return the messages with ``context`` at the front of the last one from the user."""
    asked = [index for index, message in enumerate(messages) if message.get("role") == "user"]
    if not asked:
        return [*messages, {"role": "user", "content": context}]
    question = messages[asked[-1]]
    content = question.get("content")
    if isinstance(content, list):
        shown: Any = [{"type": "text", "text": context}, *content]
    else:
        shown = context + SEPARATOR + content if content else context
    return [*messages[: asked[-1]], {**question, "content": shown}, *messages[asked[-1] + 1 :]]


def _defaults(sampling: SamplingSection, body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the task's values for what the client left out."""
    values: dict[str, Any] = {"temperature": sampling.temperature, "top_p": sampling.top_p}
    if all(body.get(name) is None for name in _LIMITS):
        values["max_tokens"] = sampling.max_tokens
    return {name: value for name, value in values.items() if value is not None and body.get(name) is None}
