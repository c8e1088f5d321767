"""What else the model would have said: a turn decoded again by a worker that shows the likeliest tokens."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import httpx
from pydantic import BaseModel, ConfigDict, ValidationError

from gateway.errors import ReplayError
from gateway.lab.diagnosis.case import Answer, Case, StepPlace
from gateway.replay.recorded import RecordedTurn

NUM_TOP = 5


class Likely(BaseModel):
    """One token that could have come; ``logprob`` at temperature 1."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    id: int
    piece: str
    logprob: float


class _Answer(BaseModel):
    model_config = ConfigDict(extra="ignore")

    pieces: list[str]
    top: list[list[Likely]]
    top_after: list[list[Likely]]
    environment: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Shown:
    """A step's own token as text, and the likeliest ones before and after penalties and gravity."""

    piece: str
    top: tuple[Likely, ...]
    top_after: tuple[Likely, ...]


@dataclass(frozen=True, slots=True)
class Likeliest:
    """What a worker shows of a turn: the wanted steps, and what it computes with."""

    steps: Mapping[StepPlace, Shown]
    environment: Mapping[str, Any]


async def likeliest(
    client: httpx.AsyncClient, turn: RecordedTurn, case: Case, wanted: Collection[StepPlace]
) -> Likeliest:
    """Feed the recorded tokens to the worker again and keep the ``wanted`` steps. Raises ReplayError."""
    shown: dict[StepPlace, Shown] = {}
    environment: Mapping[str, Any] = {}
    for answer in case.answers:
        steps = {place.step for place in wanted if place.choice == answer.choice}
        if not steps and environment:
            continue
        # Up to the last step that is wanted, and at least one: the environment comes with it.
        again = await _decode(client, turn, answer, 1 + max(steps, default=0))
        environment = again.environment
        for step in steps:
            tops = tuple(again.top[step]), tuple(again.top_after[step])
            shown[StepPlace(answer.choice, step)] = Shown(again.pieces[step], *tops)
    return Likeliest(shown, environment)


async def _decode(client: httpx.AsyncClient, turn: RecordedTurn, answer: Answer, num_steps: int) -> _Answer:
    body = {
        "request": turn.request(),
        "endpoint": turn.endpoint,
        "choice": answer.choice,
        "tokens": [step.token_id for step in answer.steps[:num_steps]],
        "num_top": NUM_TOP,
    }
    try:
        response = await client.post("/replay", json=body)
    except httpx.TransportError as error:
        raise ReplayError(f"the worker at {client.base_url} failed: {error!r}") from error
    if response.status_code != httpx.codes.OK:
        raise ReplayError(f"the worker refused ({response.status_code}): {response.text}")
    try:
        decoded = _Answer.model_validate_json(response.content)
    except ValidationError as error:
        raise ReplayError(f"the worker's answer to /replay cannot be read: {error}") from error
    if min(len(decoded.pieces), len(decoded.top), len(decoded.top_after)) < min(num_steps, len(answer.steps)):
        raise ReplayError("the worker's answer to /replay lacks steps")
    return decoded
