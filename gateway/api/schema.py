"""A request's bytes, checked: strict types, OpenAI's ranges, one error that names the field.

What is checked is not changed: unknown fields stay in the body and go to the worker as they came.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import orjson
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from pydantic_core import ErrorDetails

from gateway.errors import InvalidJson, InvalidRequest
from gateway.store.document import TaskDocument

MAX_STOPS = 4
MAX_CHOICES = 128
WRITABLE_LEVELS = 254
"""Of lists and objects in each other, which orjson writes at most."""
MAX_NESTING = 246
"""Levels of a body: a record adds up to 8 around it; what could be read but not written again is too deep."""
OVERRIDABLE = frozenset(
    {
        *("core_semantics", "penalize", "gravity_strength", "decay_after_steps"),
        *("adaptive", "gravity", "temperature"),
    }
)
"""The parts of a task document that a request may change for itself, under ``gravity``."""

Stop: TypeAlias = str | Annotated[list[str], Field(max_length=MAX_STOPS)]
Penalty: TypeAlias = Annotated[float, Field(ge=-2.0, le=2.0)]
Tokens: TypeAlias = Annotated[int, Field(ge=1, le=10_000_000)]
Bias: TypeAlias = Annotated[float, Field(ge=-100.0, le=100.0)]
M = TypeVar("M", bound=BaseModel)
TokenIds: TypeAlias = Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]


class Strict(BaseModel):
    """The base of every request: no value is coerced, what is not known is not looked at."""

    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)


class StreamOptions(Strict):
    include_usage: bool | None = None


class Message(Strict):
    role: Annotated[str, StringConstraints(min_length=1, max_length=64)]
    content: str | list[dict[str, Any]] | None = None


def _with_documents(schema: dict[str, Any]) -> None:
    # Checked in documents.py, whose errors name a document's own field.
    described = {"anyOf": [{"items": {"type": ["string", "object"]}, "type": "array"}, {"type": "null"}]}
    schema["properties"]["documents"] = {"title": "Documents", "default": None, **described}


class CommonRequest(Strict):
    """What the two endpoints share."""

    model_config = ConfigDict(json_schema_extra=_with_documents)

    model: Annotated[str, StringConstraints(min_length=1, max_length=512)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES)] | None = None
    max_tokens: Tokens | None = None
    temperature: Annotated[float, Field(ge=0.0, le=2.0)] | None = None
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    stop: Stop | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    logit_bias: dict[str, Bias] | None = None
    user: str | None = None
    task: str | None = None
    gravity: dict[str, Any] | None = None


class ChatRequest(CommonRequest):
    messages: Annotated[list[Message], Field(min_length=1)]
    max_completion_tokens: Tokens | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None


class CompletionRequest(CommonRequest):
    prompt: (
        str
        | Annotated[list[str], Field(min_length=1)]
        | TokenIds
        | Annotated[list[TokenIds], Field(min_length=1)]
    )
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None


REQUESTS: dict[Literal["/v1/chat/completions", "/v1/completions"], type[CommonRequest]] = {
    "/v1/chat/completions": ChatRequest,
    "/v1/completions": CompletionRequest,
}
KNOWN_FIELDS = frozenset(
    name for model in (ChatRequest, CompletionRequest, Message, StreamOptions) for name in model.model_fields
)
OWN_FIELDS = frozenset({"documents", "task", "gravity"})


def parsed(raw: bytes, max_nesting: int = MAX_NESTING) -> dict[str, Any]:
    """Return the JSON object in ``raw``. Raises InvalidJson for anything that is not one."""
    body = parsed_value(raw, max_nesting)
    if not isinstance(body, dict):
        raise InvalidJson("The body must be a JSON object.")
    return body


def parsed_value(raw: bytes, max_nesting: int = MAX_NESTING) -> Any:
    """Return the JSON in ``raw``, of at most so many levels. Raises InvalidJson.

    orjson refuses what a worker or a log could stumble over: NaN, 1e999, integers beyond a double, lone
    surrogates (colibri#1589), bad UTF-8, nesting without end.
    """
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise InvalidJson(f"The body is not valid JSON: {error.msg}.") from error
    nested: object = body
    for _ in range(WRITABLE_LEVELS - max_nesting):
        nested = [nested]
    try:
        orjson.dumps(nested)
    except orjson.JSONEncodeError as error:
        raise InvalidJson("The body is nested too deeply.") from error
    return body


def check(endpoint: Literal["/v1/chat/completions", "/v1/completions"], body: dict[str, Any]) -> None:
    """Raise InvalidRequest for the first field that is wrong."""
    checked(REQUESTS[endpoint], body)
    override = body.get("gravity")
    if override:
        check_override(override)


def checked(model: type[M], body: dict[str, Any]) -> M:
    """Return ``body`` as ``model``. Raises InvalidRequest for the first field that is wrong."""
    try:
        return model.model_validate(body)
    except ValidationError as error:
        raise _invalid(error, "", KNOWN_FIELDS | model.model_fields.keys()) from None


def check_override(override: dict[str, Any]) -> None:
    """Raise InvalidRequest where ``gravity`` names what it may not change, or leaves a field's bounds.

    Whether its fields go together can be said only with the task's own beside them: stage 4 does.
    """
    for name in override:
        if name not in OVERRIDABLE:
            allowed = ", ".join(sorted(OVERRIDABLE))
            raise InvalidRequest(f"gravity has a field that is none of: {allowed}.", param="gravity")
    try:
        TaskDocument.model_validate_json(orjson.dumps({**override, "task_type": "override"}), strict=True)
    except ValidationError as error:
        if any(problem["type"] != "value_error" for problem in error.errors(include_url=False)):
            raise _invalid(error, "gravity", OVERRIDABLE) from None


def _invalid(error: ValidationError, prefix: str, known: frozenset[str]) -> InvalidRequest:
    found = error.errors(include_url=False, include_context=False, include_input=False)
    # A field of several types has an error for each; the one that got furthest is about what was meant.
    same_field = [problem for problem in found if problem["loc"][:1] == found[0]["loc"][:1]]
    furthest = max(map(_depth, same_field))
    meant = [problem for problem in same_field if _depth(problem) == furthest]
    param = field_path(meant[0]["loc"], prefix, known)
    of_param = [problem for problem in meant if field_path(problem["loc"], prefix, known) == param]
    words = dict.fromkeys(problem["msg"].removeprefix("Value error, ") for problem in of_param)
    message = "; or: ".join(words)
    return InvalidRequest(f"{param}: {message}" if param else message, param=param or None)


def _depth(problem: ErrorDetails) -> tuple[bool, int]:
    return not problem["type"].endswith("_type"), len(problem["loc"])


def field_path(location: tuple[int | str, ...], prefix: str, known: frozenset[str]) -> str:
    """Return the field's name, ``messages[0].content``: never a key or value of the client (vllm#12886)."""
    path = prefix
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part in known:
            path = f"{path}.{part}" if path else part
        if part == "logit_bias":
            break
    return path
