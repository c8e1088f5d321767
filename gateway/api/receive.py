"""Stage 1: a request becomes a Turn, or an error that names the field."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from starlette.requests import Request

from gateway.api.bounds import require_bounds
from gateway.api.caller import caller_of, require_lane_choice, require_use
from gateway.api.documents import normalised
from gateway.api.guard import read_body
from gateway.api.schema import OWN_FIELDS, REQUESTS, M, check, checked, parsed
from gateway.context.asked import recent
from gateway.flow.assign import LANE_HEADER
from gateway.flow.deps import Deps
from gateway.flow.messages import Messages
from gateway.flow.turn import Endpoint, Turn
from gateway.telemetry.spans import Parent


async def receive(request: Request, deps: Deps, endpoint: Endpoint) -> Turn:
    """Read, parse and check.

    Raises RequestTooLarge, InvalidJson, InvalidRequest, InsufficientScope, ModelNotFound.
    """
    received_at = deps.clock()
    headers = _headers(request, deps)
    body = parsed(await read_body(request, deps.settings.max_body_bytes), deps.settings.max_nesting)
    check(endpoint, body)
    deps.fields.note(body.keys() - REQUESTS[endpoint].model_fields.keys() - OWN_FIELDS)
    require_use(request, deps, body["model"], body.get("task") or "")
    key = caller_of(request.scope).key
    options = body.get("stream_options") or {}
    documents = normalised(body.get("documents"))
    require_bounds(body, documents, deps.settings)
    return Turn(
        id=deps.new_id(),
        received_at=received_at,
        endpoint=endpoint,
        body=_sent(body),
        model=body["model"],
        is_streaming=body.get("stream") is True,
        wants_usage=options.get("include_usage") is True,
        user=body.get("user") or "",
        headers=headers,
        parent=Parent.of(request.headers),
        documents=documents,
        requested_task=body.get("task") or "",
        gravity_override=MappingProxyType(body.get("gravity") or {}),
        question=question_of(body),
        history=history_of(body),
        caller=key.id if key else "",
        priority=key.priority if key else 0,
    )


async def read(request: Request, deps: Deps, model: type[M]) -> tuple[M, dict[str, Any]]:
    """Return a body that is no turn's, as ``model`` and as it came.

    Raises RequestTooLarge, InvalidJson, InvalidRequest.
    """
    body = parsed(await read_body(request, deps.settings.max_body_bytes), deps.settings.max_nesting)
    sent = checked(model, body)
    deps.fields.note(body.keys() - model.model_fields.keys())
    return sent, body


def _sent(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the client said, without what is ours alone."""
    sent = {name: value for name, value in body.items() if name not in OWN_FIELDS}
    if "messages" in sent:
        sent["messages"] = Messages(sent["messages"])
    return sent


def question_of(body: Mapping[str, Any]) -> str:
    """Return what the documents are judged against: the last user message, or the (last) prompt."""
    if "messages" in body:
        asked = [message for message in body["messages"] if message["role"] == "user"]
        return _text(asked[-1].get("content")) if asked else ""
    prompt = body["prompt"]
    last = prompt[-1] if isinstance(prompt, list) else prompt
    return last if isinstance(last, str) else ""


def history_of(body: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what was said before the last user message, oldest first, as far as it is read."""
    said = [message for message in body.get("messages") or () if message["role"] in ("user", "assistant")]
    asked = [index for index, message in enumerate(said) if message["role"] == "user"]
    earlier = said[: asked[-1]] if asked else []
    return recent([_text(message.get("content")) for message in earlier])


def _text(content: object) -> str:
    if not isinstance(content, list):
        return content if isinstance(content, str) else ""
    texts = (part.get("text") for part in content)
    return "\n".join(text for text in texts if isinstance(text, str))


def _headers(request: Request, deps: Deps) -> Mapping[str, str]:
    """Return those that assignment reads: each experiment's unit header, and the lane for those who may."""
    names = {e.unit_header.lower() for e in deps.config.snapshot.experiments if e.unit_header}
    if LANE_HEADER in request.headers:
        require_lane_choice(request, deps)
        names.add(LANE_HEADER)
    return MappingProxyType({name: request.headers[name] for name in names if name in request.headers})
