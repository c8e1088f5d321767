"""What good answers hold, for ``/openapi.json``. Tests hold real answers against these models.

Endpoints build their answers themselves, since what a worker sends passes through; none is parsed by these.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict


class Answer(BaseModel):
    """The base of every answer: a worker may send more than is written here."""

    model_config = ConfigDict(extra="allow")


class Usage(Answer):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class Verdict(Answer):
    """What became of one document."""

    id: str
    kept: bool
    reason: str
    score: float | None
    tokens: int
    cluster: int | None
    duplicate_of: str | None
    detail: str


class Conflict(Answer):
    documents: list[str]
    spans: list[str]
    detail: str


class Centre(Answer):
    documents: list[str]
    theme: list[str]


class Pruning(Answer):
    """What pruning found beside its verdicts."""

    theme: list[str] | None
    conflicts: list[Conflict]
    centres: list[Centre]
    tokens_before: int
    tokens_after: int
    are_tokens_estimated: bool
    note: str


class GravityObject(Pruning):
    """What was done to the request: the extra object of a chat or text completion."""

    turn_id: str
    lane: str
    lane_reason: str
    experiment: str | None
    task: str | None
    config_sha: str
    documents: list[Verdict]
    shed: list[str]
    bucket: int | None
    expected_s: float | None
    worker: str
    bucket_pool: Literal["own", "shared", "other"] | None
    warnings: list[str]


class ChatCompletion(Answer):
    """With ``stream`` the same comes in chunks, as server-sent events up to ``[DONE]``."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[dict[str, Any]]
    usage: Usage | None = None
    gravity: GravityObject


class TextCompletion(Answer):
    """With ``stream`` the same comes in chunks, as server-sent events up to ``[DONE]``."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[dict[str, Any]]
    usage: Usage | None = None
    gravity: GravityObject


class KeptDocument(Answer):
    index: int
    id: str
    title: str
    text: str
    metadata: dict[str, Any]
    score: float | None
    reason: str
    detail: str


class IndexedVerdict(Verdict):
    index: int


class Pruned(Pruning):
    id: str
    object: Literal["prune"]
    model: str | None
    task: str
    config_sha: str
    documents: list[KeptDocument]
    verdicts: list[IndexedVerdict]
    context: str


class RankedDocument(Answer):
    index: int
    relevance_score: float


class Reranked(Answer):
    id: str
    model: str
    results: list[RankedDocument]
    meta: dict[str, Any]
    usage: dict[str, int]


class ServedModel(Answer):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    max_model_len: int | None


class ModelList(Answer):
    object: Literal["list"]
    data: list[ServedModel]


class RecordedTurn(Answer):
    turn: dict[str, Any]
    choices: list[dict[str, Any]]
    trace_problem: str | None


class Alive(Answer):
    status: Literal["alive"]


class Readiness(Answer):
    status: Literal["ready", "not_ready"]
    reasons: list[str]


class Health(Answer):
    status: Literal["ok", "degraded", "unavailable"]
    reasons: list[str]
    config: dict[str, Any]
    redis: dict[str, Any]
    keys: dict[str, Any]
    records: dict[str, Any]
    workers: list[dict[str, Any]]
    queue: dict[str, Any]
    shedding: dict[str, Any]
    open_turns: int


class ErrorBody(BaseModel):
    message: str
    type: str
    param: str | None
    code: str


class Error(BaseModel):
    """Every error outside /admin: OpenAI's object."""

    error: ErrorBody


class Problem(BaseModel):
    """Every error under /admin: RFC 9457, with what helps to put it right beside its own members."""

    model_config = ConfigDict(extra="allow")

    type: str
    title: str
    status: int
    detail: str
    instance: str
    code: str
