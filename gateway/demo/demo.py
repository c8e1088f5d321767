"""The demo, top to bottom: start, ask, show the steps, ask the control lane, replay, end."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import httpx
from redis.asyncio import Redis
from redis.exceptions import RedisError
from rich.console import Console
from rich.text import Text

from gateway.demo.client import TIMEOUT, Answer, ask
from gateway.demo.corpus import DOCUMENTS, QUESTION, Chunk
from gateway.demo.page import print_documents, print_lanes, print_turn
from gateway.errors import DemoError
from gateway.flow.record import turn_key
from gateway.replay.recorded import RecordedTurn, read_turn
from gateway.replay.replay import replay_turn
from gateway.replay.report import print_replay
from gateway.stack.child import keep_quiet
from gateway.stack.environment import child_environment
from gateway.stack.ports import free_port
from gateway.stack.signals import until_signal
from gateway.stack.stack import Stack, StackPlan, running
from gateway.trace.steps import ChoiceSteps, wait_for_steps
from gateway.trace.table import print_steps

TASK = "rag_qa"
MAX_TOKENS = 48
SEED = 7
SETTINGS = {"NG_TEXT_RETENTION": "full", "NG_LANE_OVERRIDE": "anyone"}
"""What the demo needs, whatever this machine's environment says. Its Valkey is always its own."""
RECORD_TIMEOUT_S, POLL_S = 10.0, 0.05


def run_demo() -> int:
    """Return 0 where all went as it should, 1 where the replay differs. Raises CommandError otherwise."""
    try:
        return asyncio.run(until_signal(_demo()))
    except (httpx.HTTPError, RedisError) as error:
        raise DemoError(f"a process stopped answering: {error!r}") from error


async def _demo() -> int:
    console = Console(highlight=False)
    console.rule("1  Three processes")
    console.print("starting an embedded Valkey, a worker with its model, and the gateway …")
    started = time.perf_counter()
    plan = StackPlan(free_port(), free_port(), free_port(), environment=child_environment() | SETTINGS)
    async with running(plan, keep_quiet) as stack:
        for child in stack.children:
            console.print(f"{child.name:<8} process {child.pid}")
        console.print(f"gateway at {stack.gateway_url}, after {time.perf_counter() - started:.1f} s")
        async with (
            httpx.AsyncClient(base_url=stack.gateway_url, timeout=TIMEOUT) as client,
            Redis.from_url(stack.redis_url, socket_timeout=5.0) as redis,
        ):
            status = await _show(console, stack, client, redis)
    console.print("\nall processes have ended")
    return status


async def _show(console: Console, stack: Stack, client: httpx.AsyncClient, redis: Redis) -> int:
    model = await _model(client)
    # Neither lane shall pay for what is done once: first allocations, threads, connections.
    await _ask_quietly(client, _body(model) | {"documents": _documents(DOCUMENTS[:2]), "max_tokens": 2})
    console.print("one small request sent, to warm everything up")
    console.rule("2  A question and its documents")
    console.print(Text(f"{QUESTION}\n({len(DOCUMENTS)} chunks, as a retriever found them)\n"))
    treatment = _checked(await _ask(console, client, model), "treatment")

    console.rule("4  Every token, read back from Redis")
    trace = await _trace(redis, treatment)
    print_steps(console, trace.steps, treatment.tokens)

    console.rule("5  The same question in the control lane, unpruned")
    control = _checked(await _ask_quietly(client, _body(model), "control"), "control")
    print_lanes(console, (treatment, control))

    console.rule("6  The first turn, replayed from its trace")
    turn = await _recorded(redis, treatment.turn_id)
    async with httpx.AsyncClient(base_url=stack.worker_url, timeout=TIMEOUT) as worker:
        replay = await replay_turn(worker, turn, [trace], is_exact=False)
    print_replay(console, replay)
    return 0 if replay.is_equal else 1


async def _ask(console: Console, client: httpx.AsyncClient, model: str) -> Answer:
    """Ask, and show the report and the text as they arrive."""

    def on_gravity(gravity: Mapping[str, Any]) -> None:
        print_documents(console, gravity)
        console.print()
        print_turn(console, gravity)
        console.rule("3  The answer, as it comes")

    def on_text(text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()

    answer = await ask(client, _body(model), {"X-Gravity-Lane": "treatment"}, on_gravity, on_text)
    console.print()
    return answer


async def _ask_quietly(client: httpx.AsyncClient, body: Mapping[str, Any], lane: str = "treatment") -> Answer:
    return await ask(client, body, {"X-Gravity-Lane": lane}, lambda gravity: None, lambda text: None)


def _body(model: str) -> dict[str, Any]:
    return {
        "model": model,
        "messages": [{"role": "user", "content": QUESTION}],
        "documents": _documents(DOCUMENTS),
        "task": TASK,
        "max_tokens": MAX_TOKENS,
        "seed": SEED,
        "stream": True,
        "stream_options": {"include_usage": True},
        "logprobs": True,
    }


def _documents(chunks: Sequence[Chunk]) -> list[dict[str, str]]:
    return [{"id": chunk.id, "title": chunk.title, "text": chunk.text} for chunk in chunks]


def _checked(answer: Answer, lane: str) -> Answer:
    """Raise DemoError where the answer is not what was asked for."""
    if not answer.text.strip():
        raise DemoError(f"the {lane} lane's answer is empty")
    if answer.first_gravity.get("lane") != lane:
        raise DemoError(f"asked for the {lane} lane, served in {answer.first_gravity.get('lane')!r}")
    return answer


async def _model(client: httpx.AsyncClient) -> str:
    models = (await client.get("/v1/models")).raise_for_status().json()
    return str(models["data"][0]["id"])


async def _trace(redis: Redis, answer: Answer) -> ChoiceSteps:
    (trace,) = await wait_for_steps(redis, answer.turn_id)
    if len(trace.steps) != answer.usage["completion_tokens"]:
        raise DemoError(
            f"Redis has {len(trace.steps)} steps, the answer has {answer.usage['completion_tokens']} tokens"
        )
    return trace


async def _recorded(redis: Redis, turn_id: str) -> RecordedTurn:
    """The record is written in the background, soon after the answer's end."""
    for _ in range(int(RECORD_TIMEOUT_S / POLL_S)):
        if await redis.exists(turn_key(turn_id)):
            break
        await asyncio.sleep(POLL_S)
    return await read_turn(redis, turn_id)
