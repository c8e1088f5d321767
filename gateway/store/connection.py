"""The connection to Redis: bounded in every way, and watched, so that people can be told how it is."""

from __future__ import annotations

import asyncio

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from gateway.settings import GatewaySettings

MAX_CONNECTIONS = 32
WATCH_S = 1.0


def open_redis(settings: GatewaySettings) -> Redis:
    """Return a client that connects when it is first used, waits as long as the settings say, never retries.

    Whoever uses it decides what a failure means; all of them are RedisError or OSError.
    """
    return Redis.from_url(
        settings.redis_url.get_secret_value(),
        socket_timeout=settings.redis_timeout_s,
        socket_connect_timeout=settings.redis_timeout_s,
        retry=Retry(NoBackoff(), 0),
        max_connections=MAX_CONNECTIONS,
    )


class RedisWatch:
    """Pings Redis in the background. Redis away means degraded, never unready."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self.is_answering = False
        self.reason = "not asked yet"

    async def watch(self) -> None:
        """Ping at the interval until cancelled."""
        while True:
            try:
                await self._redis.ping()
                self.is_answering, self.reason = True, ""
            except (RedisError, OSError) as error:
                self.is_answering, self.reason = False, str(error)
            await asyncio.sleep(WATCH_S)
