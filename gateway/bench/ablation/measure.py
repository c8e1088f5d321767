"""Runs every arm on stacks of its own: Valkey, a worker and the gateway, one stack for each scheduler."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from redis.asyncio import Redis

from gateway.api.answer import TURN_HEADER
from gateway.bench.ablation.arms import ARMS, Arm, write_tasks
from gateway.bench.ablation.figures import ArmBlock, Turn
from gateway.bench.ablation.questions import QUESTIONS, Question, documents, is_right
from gateway.bench.usage import Usage
from gateway.errors import CommandError
from gateway.stack.child import keep_quiet
from gateway.stack.ports import free_port
from gateway.stack.stack import Stack, StackPlan, running
from gateway.trace.query import EVERY, TurnSummaryRow, find_turns

RECORDED_S = 30.0
POLL_S = 0.05
TIMEOUT_S = 600.0
Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class AblationPlan:
    """``num_questions`` of the bundled ones in each block, asked by ``num_clients`` in a closed loop."""

    num_blocks: int = 5
    num_questions: int = len(QUESTIONS)
    num_clients: int = 4
    seed: int = 0
    arms: Sequence[Arm] = ARMS


WARM_UP = AblationPlan(1, 1, 1, 1_000_000)


@dataclass(frozen=True, slots=True)
class Ablated:
    """Blocks by arm. ``load`` is the load average over a minute, before and after."""

    blocks: Mapping[str, Sequence[ArmBlock]]
    load: tuple[float, float]


@dataclass(frozen=True, slots=True)
class _Asked:
    """A question as it went out, and when what came back."""

    question: Question
    turn_id: str
    text: str
    latency_s: float


async def ablate(plan: AblationPlan, tell: Tell) -> Ablated:
    """Measure all arms, in a rotated order in each block. Raises CommandError where a turn fails."""
    blocks: dict[str, list[ArmBlock]] = {arm.name: [] for arm in plan.arms}
    async with AsyncExitStack() as stack:
        folder = (
            Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gravity-ablation-"))) / "configs"
        )
        write_tasks(folder)
        stacks = {}
        for scheduler in dict.fromkeys(arm.scheduler for arm in plan.arms):
            tell(f"starting a gateway and a worker ({scheduler})")
            stacks[scheduler] = await stack.enter_async_context(
                running(_stack_plan(folder, scheduler), keep_quiet)
            )
        for arm in plan.arms:
            await _block(arm, stacks[arm.scheduler], WARM_UP, 0)  # loads what is loaded late
        before = os.getloadavg()[0]
        for number in range(plan.num_blocks):
            first = number % len(plan.arms)
            for arm in (*plan.arms[first:], *plan.arms[:first]):
                tell(f"block {number + 1} of {plan.num_blocks}: {arm.name}")
                blocks[arm.name].append(await _block(arm, stacks[arm.scheduler], plan, number))
    return Ablated(blocks, (before, os.getloadavg()[0]))


def _stack_plan(folder: Path, scheduler: str) -> StackPlan:
    environment = {
        "NG_CONFIG_DIR": str(folder),
        "NG_CONFIG_STORE": "files",
        "NG_WORKER_SCHEDULER": scheduler,
        "NG_WORKER_THREADS": "1",
    }
    return StackPlan(free_port(), free_port(), free_port(), None, environment)


async def _block(arm: Arm, stack: Stack, plan: AblationPlan, number: int) -> ArmBlock:
    usages = [Usage(child.pid, child.name) for child in stack.children if child.name != "valkey"]
    before_s = sum(usage.cpu_s() for usage in usages)
    began = time.perf_counter()
    asked = await _ask_all(arm, stack.gateway_url, plan, number)
    elapsed_s = time.perf_counter() - began
    cpu_s = sum(usage.cpu_s() for usage in usages) - before_s
    rows = await _recorded(stack.redis_url, {each.turn_id for each in asked})
    return ArmBlock(tuple(_turn(each, rows[each.turn_id]) for each in asked), elapsed_s, cpu_s)


async def _ask_all(arm: Arm, url: str, plan: AblationPlan, number: int) -> list[_Asked]:
    waiting = iter(list(enumerate(QUESTIONS[: plan.num_questions])))
    asked: list[_Asked] = []
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
    async with aiohttp.ClientSession(url, timeout=timeout) as session:
        model = await _model(session)

        async def client() -> None:
            for place, question in waiting:  # one iterator for all clients
                body = {"model": model, **_body(arm, question, (plan.seed, number, place))}
                answer = await _ask(session, question, body)
                asked.append(answer)

        try:
            async with asyncio.TaskGroup() as clients:
                for _ in range(plan.num_clients):
                    clients.create_task(client())
        except* (aiohttp.ClientError, TimeoutError) as errors:
            raise CommandError(f"{arm.name}: the gateway does not answer: {errors.exceptions[0]!r}") from None
        except* CommandError as errors:
            raise CommandError(f"{arm.name}: {errors.exceptions[0]}") from None
    return asked


def _body(arm: Arm, question: Question, seed: tuple[int, ...]) -> dict[str, Any]:
    # No two prompts begin alike: what stays of a question's documents would be known from the block before.
    named = f"{'-'.join(map(str, seed))} {arm.name}. You answer from documents."
    return {
        "messages": [{"role": "system", "content": named}, {"role": "user", "content": question.text}],
        "documents": documents(seed),
        "task": arm.task,
        "seed": seed[1],
    }


async def _model(session: aiohttp.ClientSession) -> str:
    """Return the name of the model that the worker serves."""
    async with session.get("/v1/models") as response:
        return str((await response.json())["data"][0]["id"])


async def _ask(session: aiohttp.ClientSession, question: Question, body: dict[str, Any]) -> _Asked:
    began = time.perf_counter()
    async with session.post("/v1/chat/completions", json=body) as response:
        answer = await response.json()
        if response.status != 200:
            raise CommandError(f"status {response.status}: {answer}")
    text = answer["choices"][0]["message"]["content"] or ""
    return _Asked(question, response.headers[TURN_HEADER], text, time.perf_counter() - began)


async def _recorded(redis_url: str, ids: set[str]) -> dict[str, TurnSummaryRow]:
    """Return the records of these turns once all are written. Raises CommandError after RECORDED_S."""
    deadline = time.monotonic() + RECORDED_S
    async with Redis.from_url(redis_url) as redis:
        while True:
            rows = {row.id: row for row in await find_turns(redis, EVERY) if row.id in ids}
            if len(rows) == len(ids):
                return rows
            if time.monotonic() > deadline:
                raise CommandError(f"{len(ids) - len(rows)} turns were not recorded in {RECORDED_S:.0f} s")
            await asyncio.sleep(POLL_S)


def _turn(asked: _Asked, row: TurnSummaryRow) -> Turn:
    if row.entropic_time_nats is None or row.cost_gmac is None:
        raise CommandError(f"the record of turn {row.id} says nothing of its entropic time and cost")
    return Turn(
        asked.latency_s,
        is_right(asked.question, asked.text),
        row.completion_tokens,
        row.prompt_tokens,
        row.entropic_time_nats,
        row.cost_gmac,
    )
