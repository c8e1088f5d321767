"""Where an experiment's document and data are: the options, else the environment, as a gateway reads it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError
from redis.asyncio import Redis
from redis.exceptions import RedisError

from gateway.errors import ConfigError, ExperimentError
from gateway.settings import ConfigStoreKind, GatewaySettings
from gateway.stack.environment import config_folder, described, redis_to_read
from gateway.stack.valkey import without_password
from gateway.store.centre import ConfigCentre
from gateway.store.opening import open_centre

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ExperimentSource:
    """None is what the environment says."""

    store: ConfigStoreKind | None = None
    config: Path | None = None
    redis: str | None = None
    namespace: str | None = None

    @property
    def redis_url(self) -> str:
        return self.redis or redis_to_read()

    def ask(self, question: Callable[[ConfigCentre], T]) -> T:
        """Return what the configuration centre answers. Raises ExperimentError."""
        try:
            return question(open_centre(self._settings()))
        except ConfigError as error:
            raise ExperimentError(described(error)) from error

    async def read(self, reading: Callable[[Redis], Awaitable[T]]) -> T:
        """Return what Redis has. Raises ExperimentError."""
        async with Redis.from_url(self.redis_url, socket_timeout=10.0, socket_connect_timeout=5.0) as redis:
            try:
                return await reading(redis)
            except RedisError as error:
                place = without_password(self.redis_url)
                raise ExperimentError(f"Redis at {place} does not answer: {error}") from error

    def _settings(self) -> GatewaySettings:
        given: dict[str, Any] = {"config_dir": self.config or config_folder(), "redis_url": self.redis_url}
        if self.store is not None:
            given["config_store"] = self.store
        if self.namespace is not None:
            given["config_namespace"] = self.namespace
        try:
            return GatewaySettings(**given)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            raise ExperimentError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error
