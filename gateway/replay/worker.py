"""The worker that decodes a turn again: one that runs already, or one started for it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
from pydantic import BaseModel, ConfigDict, ValidationError

from gateway.errors import ReplayError, ReplayWorkerLost, StackError
from gateway.replay.recorded import Decoding, RecordedTurn
from gateway.stack.child import keep_quiet
from gateway.stack.environment import child_environment
from gateway.stack.ports import free_port
from gateway.stack.stack import StackPlan, running

TIMEOUT = httpx.Timeout(5.0, read=600.0)


@dataclass(frozen=True, slots=True)
class WorkerPlan:
    """Which workers are asked, and with which Redis one is started where none of them can; None: never."""

    candidates: Sequence[str]
    start_with_redis: str | None = None


class ReplayAnswer(BaseModel):
    """What ``/replay`` answers; columns are named as StepRecord's fields."""

    model_config = ConfigDict(extra="ignore")

    steps: dict[str, list[float]]
    tokens: list[int]
    text: str
    model: str
    dtype: str
    pieces: list[str] = []
    """Each token's text."""
    environment: dict[str, Any] = {}
    """What the worker computes with."""


async def replay_choice(
    client: httpx.AsyncClient, turn: RecordedTurn, choice: int, tokens: Sequence[int] | None
) -> ReplayAnswer:
    """Decode one choice again: the tokens given, or drawn anew. Raises ReplayError where it is refused."""
    return await decode_choice(client, turn.decoding(), choice, tokens)


async def decode_choice(
    client: httpx.AsyncClient, decoding: Decoding, choice: int = 0, tokens: Sequence[int] | None = None
) -> ReplayAnswer:
    """Decode one choice of a request, alone in the batch where no tokens are given. Raises ReplayError."""
    body = {
        "request": dict(decoding.request),
        "endpoint": decoding.endpoint,
        "choice": choice,
        "tokens": None if tokens is None else list(tokens),
        "num_top": 0,  # the texts of the tokens and the environment, and no likeliest ones
    }
    try:
        answer = await client.post("/replay", json=body)
    except httpx.TransportError as error:
        raise ReplayWorkerLost(f"the worker at {client.base_url} failed: {error!r}") from error
    if answer.status_code != httpx.codes.OK:
        raise ReplayError(f"the worker refused the replay ({answer.status_code}): {answer.text}")
    try:
        return ReplayAnswer.model_validate_json(answer.content)
    except ValidationError as error:
        raise ReplayError(f"the worker's answer to /replay cannot be read: {error}") from error


@asynccontextmanager
async def replay_worker(
    turn: RecordedTurn, candidates: Sequence[str], redis_url: str, *, may_start: bool
) -> AsyncIterator[httpx.AsyncClient]:
    """Give a client of the first candidate that can replay the turn, or of a worker started for it.

    Raises ReplayError where none can and none may be started.
    """
    async with worker_of(turn.model, WorkerPlan(candidates, redis_url if may_start else None)) as client:
        yield client


@asynccontextmanager
async def worker_of(model: str, plan: WorkerPlan) -> AsyncIterator[httpx.AsyncClient]:
    """Give a client of the first worker of the plan that serves ``model``, or of one started for it.

    Raises ReplayError where none does and none may be started.
    """
    reasons = []
    for url in plan.candidates:
        async with httpx.AsyncClient(base_url=url, timeout=TIMEOUT) as client:
            reason = await _why_not(client, model)
            if reason is None:
                yield client
                return
            reasons.append(f"{url}: {reason}")
    if plan.start_with_redis is None:
        raise ReplayError("no worker can replay it: " + "; ".join(reasons))
    async with (
        _started(plan.start_with_redis) as url,
        httpx.AsyncClient(base_url=url, timeout=TIMEOUT) as client,
    ):
        if (reason := await _why_not(client, model)) is not None:
            raise ReplayError(f"a worker started for it cannot replay it: {reason}; set NG_WORKER_MODEL")
        yield client


@asynccontextmanager
async def _started(redis_url: str) -> AsyncIterator[str]:
    plan = StackPlan(None, free_port(), 0, redis_url, child_environment())
    try:
        async with running(plan, keep_quiet) as stack:
            yield stack.worker_url
    except StackError as error:
        raise ReplayError(f"no worker answers and none can be started: {error}") from error


async def _why_not(client: httpx.AsyncClient, model: str) -> str | None:
    """Return why this worker cannot replay a turn of the model; None where it can."""
    try:
        answer = (await client.get("/v1/models")).raise_for_status()
        entries: Sequence[Mapping[str, Any]] = answer.json()["data"]
    except httpx.HTTPError as error:
        return f"does not answer ({type(error).__name__})"
    except (ValueError, KeyError, TypeError):
        return "does not answer as a worker"
    served = {entry.get("id"): entry for entry in entries}
    if model not in served:
        return f"serves {', '.join(map(str, served)) or 'nothing'}, the turn was {model}'s"
    if "gravity" not in served[model]:
        return "is no native worker"
    return None
