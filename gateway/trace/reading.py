"""How the trace commands get at Redis, and at a turn's record."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

import orjson
from redis.asyncio import Redis
from redis.exceptions import RedisError

from gateway.errors import TraceError
from gateway.trace.keys import turn_key

TIMEOUT_S = 10.0


@asynccontextmanager
async def reading(redis_url: str) -> AsyncIterator[Redis]:
    """Give a client; whatever Redis refuses inside becomes a TraceError."""
    async with Redis.from_url(redis_url, socket_timeout=TIMEOUT_S, socket_connect_timeout=5.0) as redis:
        try:
            yield redis
        except RedisError as error:
            raise TraceError(f"Redis does not answer: {error}") from error


async def read_record(redis: Redis, turn_id: str) -> Mapping[str, Any] | None:
    """Return the record of a turn as JSON data; None where there is none (any more)."""
    content = cast(bytes | None, await redis.get(turn_key(turn_id)))
    if content is None:
        return None
    try:
        return cast(Mapping[str, Any], orjson.loads(content))
    except orjson.JSONDecodeError as error:
        raise TraceError(f"the record of turn {turn_id!r} is damaged: {error}") from error
