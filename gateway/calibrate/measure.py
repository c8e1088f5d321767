"""Runs prompts through a gateway as a task, with nothing that steers, and reads what every step measured."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx
from tqdm import tqdm

from gateway.calibrate.profile import MeasuredTurn
from gateway.calibrate.prompts import Body, endpoint_of
from gateway.errors import CalibrationError
from gateway.store.warnings import DEFAULT_TEMPERATURE

UNSTEERED: Mapping[str, Any] = {"adaptive": None, "gravity_strength": 0, "temperature": {"mode": "off"}}
"""k, gravity and the temperature loop would all change which text is measured."""
POLL_S = 0.05
TRACE_TIMEOUT_S = 15.0
TIMEOUT = httpx.Timeout(5.0, read=600.0)


@dataclass(frozen=True, slots=True)
class Plan:
    """What is asked. ``temperature`` None is the task's own, ``model`` None the gateway's first."""

    task: str
    max_tokens: int
    temperature: float | None = None
    model: str | None = None
    num_parallel: int = 4


@dataclass(frozen=True, slots=True)
class Measurement:
    """What came of it. ``failures`` has a sentence for every prompt that gave no steps."""

    task: str
    model: str
    temperature: float
    turns: tuple[MeasuredTurn, ...]
    failures: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Taken:
    """One prompt's turn: its steps, and the model and temperature that were in force."""

    turn: MeasuredTurn
    task: str
    model: str
    temperature: float


async def measure(client: httpx.AsyncClient, plan: Plan, bodies: Sequence[Body]) -> Measurement:
    """Measure every prompt, ``num_parallel`` at a time, with a progress bar on stderr.

    Raises CalibrationError where no prompt gives steps, or where they were not measured in one way.
    """
    model = plan.model or await _first_model(client)
    slots = asyncio.Semaphore(plan.num_parallel)
    with tqdm(total=len(bodies), desc=f"calibrate {plan.task}", unit="prompt", file=sys.stderr) as progress:

        async def one(body: Body) -> _Taken | str:
            async with slots:
                try:
                    return await _take(client, plan, model, body)
                except CalibrationError as error:
                    return str(error)
                finally:
                    progress.update()

        results = await asyncio.gather(*(one(body) for body in bodies))
    taken = [result for result in results if isinstance(result, _Taken)]
    failures = tuple(result for result in results if isinstance(result, str))
    if not taken:
        raise CalibrationError(f"none of {len(bodies)} prompts could be measured: {failures[0]}")
    if len({(each.model, each.temperature, each.task) for each in taken}) > 1:
        raise CalibrationError("the prompts were not answered by one model, at one temperature, as one task")
    first = taken[0]
    return Measurement(
        first.task, first.model, first.temperature, tuple(each.turn for each in taken), failures
    )


async def _take(client: httpx.AsyncClient, plan: Plan, model: str, body: Body) -> _Taken:
    asked = {"max_tokens": plan.max_tokens, **body, "task": plan.task, "gravity": UNSTEERED, "model": model}
    if plan.temperature is not None:
        asked["temperature"] = plan.temperature
    try:
        answer = await client.post(endpoint_of(body), json=asked)
    except httpx.TransportError as error:
        raise CalibrationError(f"the gateway at {client.base_url} failed: {error!r}") from error
    if answer.status_code != httpx.codes.OK:
        raise CalibrationError(f"the gateway answered {answer.status_code}: {_reason(answer)}")
    recorded = await _recorded(client, answer.headers["x-gravity-turn-id"])
    turn = recorded["turn"]
    steps = [choice["steps"] for choice in recorded["choices"]]
    measured = MeasuredTurn(
        tuple(value for each in steps for value in each["entropy_nats"]),
        tuple(value for each in steps for value in each["normalised_entropy"]),
    )
    if not measured.entropies_nats:
        raise CalibrationError("the answer has no step")
    in_force = turn["upstream_body"].get("temperature")
    temperature = DEFAULT_TEMPERATURE if in_force is None else float(in_force)
    return _Taken(measured, turn["task"]["task_type"], turn["model"], temperature)


async def _recorded(client: httpx.AsyncClient, turn_id: str) -> Mapping[str, Any]:
    """Return the turn and its steps once all of them are there."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + TRACE_TIMEOUT_S
    while True:
        try:
            answer = await client.get(f"/admin/turns/{turn_id}")
        except httpx.TransportError as error:
            raise CalibrationError(f"the gateway at {client.base_url} failed: {error!r}") from error
        if answer.status_code in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
            raise CalibrationError(f"/admin/turns is refused, set NG_ADMIN_KEY: {_reason(answer)}")
        if answer.status_code == httpx.codes.OK:
            recorded: Mapping[str, Any] = answer.json()
            choices = recorded["choices"]
            if choices and all(choice["finish_reason"] for choice in choices):
                return recorded
        if loop.time() >= deadline:
            raise CalibrationError(
                f"the steps of turn {turn_id} are not there after {TRACE_TIMEOUT_S:.0f} s: is the worker "
                "a native one, and does it write to the gateway's Redis?"
            )
        await asyncio.sleep(POLL_S)


async def _first_model(client: httpx.AsyncClient) -> str:
    try:
        answer = (await client.get("/v1/models")).raise_for_status()
        return str(answer.json()["data"][0]["id"])
    except (httpx.HTTPError, ValueError, KeyError, IndexError, TypeError) as error:
        raise CalibrationError(f"the gateway at {client.base_url} names no model: {error!r}") from error


def _reason(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return answer.text[:200]
