"""``gravity trace delete``: asks, deletes, and says how many of each there were."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import asdict

import typer
from redis.asyncio import Redis

from gateway.flow.erase import Erased, erase_turn, erase_user
from gateway.trace.reading import reading

DONE, NOTHING = 0, 1


def delete_turn(turn_id: str, redis_url: str) -> int:
    """Delete one turn; status 1 where nothing is left of it."""
    return _report(asyncio.run(_erase(redis_url, lambda redis: erase_turn(redis, turn_id))))


def delete_user(user: str, redis_url: str) -> int:
    """Delete all that a user has left; status 1 where that is nothing."""
    return _report(asyncio.run(_erase(redis_url, lambda redis: erase_user(redis, user))))


def confirm(what: str) -> None:
    """Ask; ends the command where the answer is no."""
    typer.confirm(f"Delete {what}? This cannot be undone.", abort=True)


async def _erase(redis_url: str, erase: Callable[[Redis], Awaitable[Erased]]) -> Erased:
    async with reading(redis_url) as redis:
        return await erase(redis)


def _report(erased: Erased) -> int:
    for name, count in asdict(erased).items():
        typer.echo(f"{name:<10}{count:>8}")
    return NOTHING if erased == Erased() else DONE
