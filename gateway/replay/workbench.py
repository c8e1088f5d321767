"""The gateway's own stages for a replay: the real encoder and selector, and one worker's tokenizer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
from pydantic import SecretStr

from gateway.app import compose
from gateway.errors import ConfigError, EncoderError, InvalidRequest, ReplayError
from gateway.flow.bucket import bucket_of
from gateway.flow.deps import Deps
from gateway.flow.prune import prune
from gateway.flow.shape import shape
from gateway.flow.turn import Turn
from gateway.replay.rebuilt import as_received
from gateway.replay.recorded import Decoding
from gateway.replay.reference import is_folder
from gateway.settings import GatewaySettings
from gateway.stack.environment import config_folder, described
from gateway.store.snapshot import Snapshot
from gateway.telemetry.metrics import Metrics


@dataclass(frozen=True, slots=True)
class Workbench:
    """The stages under one configuration, and the worker that decodes what they make."""

    deps: Deps
    snapshot: Snapshot
    worker: httpx.AsyncClient

    async def under_config(self, turn: Turn) -> Turn:
        """Prune and shape a recorded turn again, its task and lane as they were. Raises ReplayError."""
        name = turn.task.task_type if turn.task is not None else "default"
        task = self.snapshot.tasks.get(name)
        if task is None:
            raise ReplayError(f"the configuration {self.snapshot.sha[:8]} has no task {name!r}")
        fresh = replace(as_received(turn), task=task, config_sha=self.snapshot.sha)
        fresh = await prune(fresh, self.deps)
        try:
            fresh = await shape(fresh, self.deps)
        except InvalidRequest as error:
            raise ReplayError(f"it is not valid under the configuration: {error}") from error
        number = bucket_of(turn.expected_s, task.buckets.edges)
        controls = fresh.controls.model_copy(update={"bucket": number})
        return replace(fresh, bucket=number, controls=controls)

    async def count_prompt(self, decoding: Decoding) -> int:
        """Return the number of tokens of a request's prompt, by the worker's tokenizer and chat template.

        Raises ReplayError.
        """
        body = decoding.request
        if "messages" in body:
            return await self._count({"messages": body["messages"]})
        prompt = body["prompt"]
        if isinstance(prompt, list) and all(isinstance(each, int) for each in prompt):
            return len(prompt)
        prompts = prompt if isinstance(prompt, list) else [prompt]
        return sum(
            [len(each) if isinstance(each, list) else await self._count({"prompt": each}) for each in prompts]
        )

    async def _count(self, body: dict[str, object]) -> int:
        try:
            answer = (await self.worker.post("/tokenize", json=body)).raise_for_status()
            return int(answer.json()["count"])
        except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
            raise ReplayError(f"the worker does not count tokens: {error!r}") from error


def settings_for(reference: str, redis_url: str) -> GatewaySettings:
    """Return the environment's settings with this Redis and, where the reference is a folder, with it."""
    settings = GatewaySettings().model_copy(update={"redis_url": SecretStr(redis_url)})
    if is_folder(reference):
        return settings.model_copy(update={"config_dir": Path(reference), "config_store": "files"})
    return settings.model_copy(update={"config_dir": config_folder()})


@asynccontextmanager
async def workbench(
    settings: GatewaySettings, snapshot: Snapshot, worker: httpx.AsyncClient
) -> AsyncIterator[Workbench]:
    """Compose the stages as the gateway does, with this one worker, and take them down again.

    Nothing is written to Redis, encodings included. Raises ReplayError where a part cannot be had.
    """
    url = str(worker.base_url).rstrip("/")
    alone = settings.model_copy(update={"workers": (url,), "encoder_redis_cache": False})
    try:
        deps = compose(alone, Metrics())
    except ConfigError as error:
        raise ReplayError(f"the stages cannot be composed: {described(error)}") from error
    try:
        await deps.pool.probe(deps.pool.workers[0])
        await deps.pruner.warm()
        yield Workbench(deps, snapshot, worker)
    except EncoderError as error:
        raise ReplayError(f"the encoder cannot be loaded: {error}") from error
    finally:
        await deps.pruner.aclose()
        await deps.pool.close()
        await deps.redis.aclose()
