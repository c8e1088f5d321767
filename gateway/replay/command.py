"""``gravity replay ID``."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

import orjson
from redis.asyncio import Redis
from redis.exceptions import RedisError
from rich.console import Console

from gateway.errors import ReplayError
from gateway.replay.recorded import read_turn
from gateway.replay.replay import TurnReplay, replay_turn
from gateway.replay.report import as_json, print_replay
from gateway.replay.worker import replay_worker
from gateway.settings import GatewaySettings
from gateway.stack.environment import redis_to_read
from gateway.stack.signals import until_signal
from gateway.stack.valkey import without_password
from gateway.trace.steps import wait_for_steps

EQUAL, DIFFERENT = 0, 1


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """``redis_url`` and ``worker_url``: None looks in the environment, then at what ``gravity up`` starts."""

    turn_id: str
    is_exact: bool = False
    redis_url: str | None = None
    worker_url: str | None = None
    json_file: Path | None = None
    trace_timeout_s: float = 5.0
    """How long steps that went by the spill file are waited for."""


def run_replay(options: ReplayOptions) -> int:
    """Print the comparison; return 0 where it is equal and 1 where a step differs.

    Raises ReplayError or TraceError (status 2) where it cannot be made.
    """
    replay = asyncio.run(until_signal(_replay(options)))
    print_replay(Console(highlight=False), replay)
    if options.json_file is not None:
        options.json_file.write_bytes(orjson.dumps(as_json(replay), option=orjson.OPT_INDENT_2) + b"\n")
    return EQUAL if replay.is_equal else DIFFERENT


async def _replay(options: ReplayOptions) -> TurnReplay:
    redis_url = options.redis_url or redis_to_read()
    async with Redis.from_url(redis_url, socket_timeout=5.0, socket_connect_timeout=5.0) as redis:
        try:
            turn = await read_turn(redis, options.turn_id)
            traces = await wait_for_steps(redis, turn.id, turn.num_choices, timeout_s=options.trace_timeout_s)
        except RedisError as error:
            raise ReplayError(f"Redis at {without_password(redis_url)} does not answer: {error}") from error
    candidates = [options.worker_url] if options.worker_url else GatewaySettings().workers
    async with replay_worker(turn, candidates, redis_url, may_start=options.worker_url is None) as client:
        return await replay_turn(client, turn, traces, is_exact=options.is_exact)
