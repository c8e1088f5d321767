"""A worker, the Redis it writes its steps to, and the one request that both examples send."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx
from redis.asyncio import Redis

from gateway.errors import ExampleError
from gateway.stack.child import keep_quiet
from gateway.stack.environment import child_environment
from gateway.stack.ports import free_port
from gateway.stack.stack import StackPlan, running
from gateway.trace.steps import wait_for_steps
from worker.protocol import XARGS_KEY, DecodeControls, StepRecord, TraceControls

TIMEOUT = httpx.Timeout(5.0, read=300.0)


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the answers are drawn. ``num_choices`` answers come from one seed and differ."""

    seed: int
    max_tokens: int
    num_choices: int = 1
    top_p: float = 1.0
    temperature: float = 0.8


@dataclass(frozen=True, slots=True)
class Completion:
    """One answer, and its steps as the worker wrote them to Redis."""

    text: str
    tokens: tuple[str, ...]
    steps: tuple[StepRecord, ...]


@dataclass(frozen=True, slots=True)
class Laboratory:
    """A running worker."""

    client: httpx.AsyncClient
    redis: Redis
    model: str

    async def complete(
        self, prompt: str, sampling: Sampling, controls: DecodeControls
    ) -> tuple[Completion, ...]:
        """Complete the prompt under the controls. Raises ExampleError where the worker refuses."""
        turn_id = f"example-{uuid.uuid4().hex}"
        traced = controls.model_copy(update={"trace": TraceControls(turn_id=turn_id)})
        body = {
            "model": self.model,
            "prompt": prompt,
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "seed": sampling.seed,
            "n": sampling.num_choices,
            "logprobs": 0,
            "vllm_xargs": {XARGS_KEY: traced.model_dump_json(exclude_none=True)},
        }
        answer = await self.client.post("/v1/completions", json=body)
        if answer.status_code != httpx.codes.OK:
            raise ExampleError(f"the worker answered {answer.status_code}: {answer.text}")
        traces = await wait_for_steps(self.redis, turn_id, sampling.num_choices)
        choices = {choice["index"]: choice for choice in answer.json()["choices"]}
        return tuple(
            Completion(
                choices[trace.choice]["text"],
                tuple(choices[trace.choice]["logprobs"]["tokens"]),
                trace.steps,
            )
            for trace in traces
        )


@asynccontextmanager
async def laboratory(worker_url: str | None, redis_url: str | None) -> AsyncIterator[Laboratory]:
    """Use the worker and Redis given, or start both and end them afterwards."""
    if worker_url is not None and redis_url is not None:
        async with _connected(worker_url, redis_url) as connected:
            yield connected
        return
    plan = StackPlan(None, free_port(), free_port(), redis_url, child_environment())
    async with running(plan, keep_quiet) as stack, _connected(stack.worker_url, stack.redis_url) as connected:
        yield connected


@asynccontextmanager
async def _connected(worker_url: str, redis_url: str) -> AsyncIterator[Laboratory]:
    async with (
        httpx.AsyncClient(base_url=worker_url, timeout=TIMEOUT) as client,
        Redis.from_url(redis_url, socket_timeout=5.0) as redis,
    ):
        models = (await client.get("/v1/models")).raise_for_status().json()
        yield Laboratory(client, redis, str(models["data"][0]["id"]))
