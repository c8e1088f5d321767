"""What rings when something may have changed: a folder's events or a channel in Redis, and a poll."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

from redis.asyncio import Redis
from redis.exceptions import RedisError
from watchfiles import Change as FileChange
from watchfiles import awatch

from gateway.telemetry.logs import log

POLL_S = 1.0
"""Changes of files are noticed at once where the system tells of them, and within this time elsewhere."""
_DEBOUNCE_MS = 200

logger = logging.getLogger(__name__)


async def folder_rings(
    path: Path, is_of_interest: Callable[[FileChange, str], bool] | None = None
) -> AsyncGenerator[None, None]:
    """Ring on a change in the folder, and every second: a bell, with the poll as the safety net.

    The poll finds what no event tells: a folder that is itself a swapped link, or a network file system.
    """
    try:
        bell = awatch(
            path,
            watch_filter=is_of_interest,
            debounce=_DEBOUNCE_MS,
            rust_timeout=int(POLL_S * 1e3),
            yield_on_timeout=True,
        )
        async for _ in bell:
            yield
    except OSError as error:
        log(logger, logging.WARNING, "watch_unavailable", folder=str(path), reason=str(error))
    while True:
        await asyncio.sleep(POLL_S)
        yield


async def channel_rings(redis: Redis, channel: str, poll_s: float) -> AsyncGenerator[None, None]:
    """Ring when the channel does, and at every poll: an unheard bell is no loss (litellm#37188)."""
    while True:
        try:
            async with redis.pubsub() as pubsub:
                await pubsub.subscribe(channel)
                while True:
                    await pubsub.get_message(ignore_subscribe_messages=False, timeout=poll_s)
                    _obey_cancelling()
                    yield
        except (RedisError, OSError):
            await asyncio.sleep(poll_s)
            yield


def _obey_cancelling() -> None:
    """Raise CancelledError where this task is to end: a read that just ran out of time may hide it."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
