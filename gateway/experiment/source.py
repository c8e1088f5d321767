"""Where an experiment's document and data are: its configuration centre, and Redis."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from redis.asyncio import Redis
from redis.exceptions import RedisError

from gateway.errors import ConfigError, ExperimentError
from gateway.stack.environment import described
from gateway.stack.target import Target
from gateway.stack.valkey import without_password
from gateway.store.centre import ConfigCentre

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ExperimentSource:
    """Both are the target's."""

    target: Target

    def ask(self, question: Callable[[ConfigCentre], T]) -> T:
        """Return what the configuration centre answers. Raises ExperimentError."""
        try:
            return question(self.target.centre())
        except ConfigError as error:
            raise ExperimentError(described(error)) from error

    async def read(self, reading: Callable[[Redis], Awaitable[T]]) -> T:
        """Return what Redis has. Raises ExperimentError."""
        url = self.target.redis_url
        async with Redis.from_url(url, socket_timeout=10.0, socket_connect_timeout=5.0) as redis:
            try:
                return await reading(redis)
            except RedisError as error:
                raise ExperimentError(f"Redis at {without_password(url)} does not answer: {error}") from error
