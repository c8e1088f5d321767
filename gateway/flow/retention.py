"""A finished turn as JSON, with as much of its texts as the retention setting allows.

``full``    everything; what replay needs
``hashed``  each text by its hash: equal texts can be found, none can be read
``none``    no text and nothing that was made from one
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, TypeAlias, cast

import orjson
from pydantic import BaseModel

from gateway.context.report import Document, PruneReport
from gateway.flow.messages import Messages
from gateway.flow.turn import Turn
from gateway.settings import TextRetention
from gateway.store.document import TaskDocument
from gateway.telemetry.spans import Parent
from gateway.trace.keys import text_hash as text_hash
from worker.protocol import DecodeControls

RECORD_SCHEMA = 1
PARAMETERS = frozenset(
    {
        *("model", "stream", "stream_options", "n", "seed", "temperature", "top_p", "top_k", "min_p"),
        *("max_tokens", "max_completion_tokens", "presence_penalty", "frequency_penalty"),
        *("repetition_penalty", "logprobs", "top_logprobs", "ignore_eos", "echo", "best_of"),
    }
)
"""Fields of a request that hold no text."""

Hide: TypeAlias = Callable[[str], str]


def encoded(turn: Turn, retention: TextRetention) -> bytes:
    """Return the record: the turn's fields by name, and the version of their meaning."""
    if retention == "hashed":
        turn = without_texts(turn, text_hash)
    elif retention == "none":
        turn = without_texts(turn, lambda text: "")
    # The outer object is written by hand so that the turn is encoded once and copied never.
    body = orjson.dumps(turn, default=_plain, option=orjson.OPT_PASSTHROUGH_SUBCLASS)
    return b'{"schema":%d,"text_retention":"%s",' % (RECORD_SCHEMA, retention.encode()) + body[1:]


def without_texts(turn: Turn, hide: Hide) -> Turn:
    """Return the turn with every text, and every word taken from one, passed through ``hide`` or left out."""
    return replace(
        turn,
        body=_parameters(turn.body),
        upstream_body=_parameters(turn.upstream_body),
        user=hide(turn.user),
        parent=Parent(turn.parent.traceparent),
        headers={},
        documents=tuple(_hidden_document(document, hide) for document in turn.documents),
        question=hide(turn.question),
        history=tuple(hide(text) for text in turn.history),
        gravity_override={},
        requested_task=turn.requested_task if turn.task is not None else hide(turn.requested_task),
        task=_hidden_task(turn),
        prune_report=_hidden_report(turn.prune_report),
        controls=_hidden_controls(turn.controls),
        outcome=replace(turn.outcome, text=hide(turn.outcome.text)),
    )


def _parameters(body: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if name in PARAMETERS}


def _hidden_document(document: Document, hide: Hide) -> Document:
    return Document(id=document.id, text=hide(document.text), title=hide(document.title))


def _hidden_task(turn: Turn) -> TaskDocument | None:
    """Return the task without its words where the request's own were laid over them."""
    if turn.task is None or not turn.gravity_override:
        return turn.task
    vector = turn.task.gravity.vector
    section = turn.task.gravity.model_copy(
        update={"vector": vector and vector.model_copy(update={"text": None})}
    )
    return turn.task.model_copy(update={"core_semantics": (), "penalize": (), "gravity": section})


def _hidden_report(report: PruneReport) -> PruneReport:
    verdicts = tuple(replace(verdict, detail="") for verdict in report.verdicts)
    conflicts = tuple(replace(conflict, spans=("", ""), detail="") for conflict in report.conflicts)
    centres = tuple(replace(centre, theme=()) for centre in report.centres)
    return replace(report, verdicts=verdicts, theme=(), conflicts=conflicts, centres=centres)


def _hidden_controls(controls: DecodeControls) -> DecodeControls:
    gravity = controls.gravity
    if gravity is None:
        return controls
    vector = gravity.vector and gravity.vector.model_copy(update={"text": None})
    words: dict[str, Any] = {"keywords": (), "penalize": (), "vector": vector}
    return controls.model_copy(update={"gravity": gravity.model_copy(update=words)})


_DUMPED: dict[int, tuple[TaskDocument, orjson.Fragment]] = {}
_MAX_DUMPED = 256


def _dumped(task: TaskDocument) -> orjson.Fragment:
    """Return a task's JSON, made once for as long as the task serves: it is in every turn's record."""
    known = _DUMPED.get(id(task))
    if known is not None and known[0] is task:
        return known[1]
    while len(_DUMPED) >= _MAX_DUMPED:
        del _DUMPED[next(iter(_DUMPED))]
    fragment = orjson.Fragment(task.model_dump_json())
    _DUMPED[id(task)] = (task, fragment)
    return fragment


def _plain(value: object) -> object:
    # The exact types first: to ask an abstract one whether a value is of it costs a microsecond.
    kind = type(value)
    if kind is Messages:
        return cast(Messages, value).json
    if kind is MappingProxyType:
        return dict(cast(MappingProxyType[str, Any], value))
    if kind is TaskDocument:
        return _dumped(cast(TaskDocument, value))
    if isinstance(value, BaseModel):
        return orjson.Fragment(value.model_dump_json())
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a turn holds a {type(value).__name__}, which is no JSON")
