"""``gravity replay ID --config REF`` and ``gravity replay --batch --config REF``."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from redis.asyncio import Redis
from redis.exceptions import RedisError
from rich.console import Console
from tqdm import tqdm

from gateway.errors import ReplayError
from gateway.replay import alternative_report, batch_report
from gateway.replay.alternative import Alternative, alternative_of, read_rebuilt, with_token_texts
from gateway.replay.batch import BatchReplay, most_common_model, replay_row, summarise
from gateway.replay.reference import snapshot_of
from gateway.replay.workbench import Workbench, settings_for, workbench
from gateway.replay.worker import WorkerPlan, worker_of
from gateway.settings import GatewaySettings
from gateway.stack.environment import redis_to_read
from gateway.stack.signals import until_signal
from gateway.stack.valkey import without_password
from gateway.trace.query import TurnQuery, find_turns

UNCHANGED, CHANGED = 0, 1


@dataclass(frozen=True, slots=True)
class ConfigReplayOptions:
    """``redis_url`` and ``worker_url``: None looks in the environment, then at what ``gravity up`` starts."""

    reference: str
    """A folder, ``head``, a version's number or the start of its sha."""
    redis_url: str | None = None
    worker_url: str | None = None
    json_file: Path | None = None
    trace_timeout_s: float = 5.0

    @property
    def redis(self) -> str:
        return self.redis_url or redis_to_read()

    @property
    def worker_plan(self) -> WorkerPlan:
        if self.worker_url is not None:
            return WorkerPlan([self.worker_url])
        return WorkerPlan(GatewaySettings().workers, self.redis)


def run_config_replay(turn_id: str, options: ConfigReplayOptions) -> int:
    """Print what the other configuration would have done; 0 where the answer is the same, 1 where it is not.

    Raises ReplayError (status 2) where it cannot be told.
    """
    alternative = asyncio.run(until_signal(_replay(turn_id, options)))
    alternative_report.print_alternative(Console(highlight=False), alternative)
    _write(options.json_file, alternative_report.as_json(alternative))
    return CHANGED if alternative.changes_answer else UNCHANGED


def run_batch(query: TurnQuery, options: ConfigReplayOptions) -> int:
    """Print how many of the turns the other configuration would change; 0 where none, 1 where some.

    Raises ReplayError (status 2) where no turn can be replayed.
    """
    batch = asyncio.run(until_signal(_replay_batch(query, options)))
    batch_report.print_batch(Console(highlight=False), batch)
    _write(options.json_file, batch_report.as_json(batch))
    if batch.answers.num_trials == 0:
        raise ReplayError("none of the turns can be replayed")
    return UNCHANGED if batch.changes_nothing else CHANGED


async def _replay(turn_id: str, options: ConfigReplayOptions) -> Alternative:
    async with _redis(options.redis) as redis:
        try:
            turn = await read_rebuilt(redis, turn_id)
            async with _bench(turn.model, options) as bench:
                alternative = await alternative_of(bench, redis, turn, options.trace_timeout_s)
                return await with_token_texts(bench, turn, alternative)
        except ReplayError as error:
            raise ReplayError(f"turn {turn_id!r} cannot be replayed: {error}") from error


async def _replay_batch(query: TurnQuery, options: ConfigReplayOptions) -> BatchReplay:
    async with _redis(options.redis) as redis:
        rows = await find_turns(redis, query)
        if not rows:
            raise ReplayError("no recorded turn is as asked for")
        model = most_common_model(rows)
        async with _bench(model, options) as bench:
            results = [
                await replay_row(bench, redis, row, model)
                for row in tqdm(rows, desc="replay", unit=" turns", file=sys.stderr)
            ]
        return summarise(results, bench.snapshot.sha)


@asynccontextmanager
async def _redis(url: str) -> AsyncIterator[Redis]:
    async with Redis.from_url(url, socket_timeout=5.0, socket_connect_timeout=5.0) as redis:
        try:
            yield redis
        except RedisError as error:
            raise ReplayError(f"Redis at {without_password(url)} does not answer: {error}") from error


@asynccontextmanager
async def _bench(model: str, options: ConfigReplayOptions) -> AsyncIterator[Workbench]:
    settings = settings_for(options.reference, options.redis)
    snapshot = await snapshot_of(options.reference, settings)
    async with (
        worker_of(model, options.worker_plan) as worker,
        workbench(settings, snapshot, worker) as bench,
    ):
        yield bench


def _write(file: Path | None, content: dict[str, Any]) -> None:
    if file is not None:
        file.write_bytes(orjson.dumps(content, option=orjson.OPT_INDENT_2) + b"\n")
