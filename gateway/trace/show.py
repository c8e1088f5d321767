"""``gravity trace show ID``."""

from __future__ import annotations

import asyncio

from redis.asyncio import Redis
from redis.exceptions import RedisError
from rich.console import Console

from gateway.errors import TraceError
from gateway.trace.steps import read_steps
from gateway.trace.table import print_steps


def run_show(turn_id: str, redis_url: str) -> int:
    """Print what is there of the turn's steps. Raises TraceError where there is nothing."""
    asyncio.run(_show(turn_id, redis_url))
    return 0


async def _show(turn_id: str, redis_url: str) -> None:
    console = Console(highlight=False)
    async with Redis.from_url(redis_url, socket_timeout=5.0) as redis:
        try:
            choices = await read_steps(redis, turn_id)
        except RedisError as error:
            raise TraceError(f"Redis does not answer: {error}") from error
    if not any(choice.steps for choice in choices):
        raise TraceError(f"no steps of turn {turn_id!r}: a wrong id, or older than the traces' lifetime")
    for choice in choices:
        console.rule(f"choice {choice.choice}, {choice.finish_reason or 'still running'}")
        print_steps(console, choice.steps)
