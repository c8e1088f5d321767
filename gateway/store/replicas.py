"""What each gateway serves, where all can see it, so that drift between them is visible."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import cast

from pydantic import TypeAdapter, ValidationError
from redis.asyncio import Redis
from redis.exceptions import RedisError

from gateway.errors import CentreUnavailable
from gateway.settings import ConfigStoreKind, GatewaySettings
from gateway.store.keys import ConfigKeys
from gateway.store.watch import StoreStatus
from gateway.telemetry.logs import log

LIFETIME_S = 10.0
"""A gateway that has not reported for so long is gone; longer for a slow poll."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """One gateway's last report."""

    replica_id: str
    store: ConfigStoreKind
    number: int
    sha: str
    loaded_at: float
    """Unix time, seconds."""
    age_s: float
    """Since this snapshot came into force there."""
    last_error: str | None
    is_last_good: bool
    num_reloads: int
    warnings: tuple[str, ...]
    models: tuple[str, ...]
    reported_at: float
    """Unix time, seconds, by that gateway's clock."""


_REPORT = TypeAdapter(ReplicaStatus)


class ReplicaBoard:
    """Writes this gateway's report at an interval, and reads everybody's."""

    def __init__(
        self, redis: Redis, settings: GatewaySettings, clock: Callable[[], float] = time.time
    ) -> None:
        self.replica_id = settings.replica_id or f"{socket.gethostname()}:{os.getpid()}"
        self._redis = redis
        self._keys = ConfigKeys(settings.config_namespace)
        self._store = settings.config_store
        self._interval_s = settings.config_poll_s
        self._lifetime_s = max(LIFETIME_S, 5 * settings.config_poll_s)
        self._clock = clock

    async def watch(self, status: Callable[[], StoreStatus], models: Callable[[], Iterable[str]]) -> None:
        """Report until cancelled. While Redis is away nothing is reported, and nothing waits for it."""
        while True:
            try:
                await self.report(status(), models())
            except (RedisError, OSError) as error:
                log(logger, logging.DEBUG, "replica_not_reported", reason=str(error))
            await asyncio.sleep(self._interval_s)

    async def report(self, status: StoreStatus, models: Iterable[str]) -> None:
        """Write one report. Raises RedisError or OSError."""
        error, now = status.last_error, self._clock()
        report = ReplicaStatus(
            replica_id=self.replica_id,
            store=self._store,
            number=status.number,
            sha=status.sha,
            loaded_at=status.loaded_at,
            age_s=status.age_s,
            last_error=None if error is None else _described(error.file, error.line, error.message),
            is_last_good=status.is_last_good,
            num_reloads=status.num_reloads,
            warnings=status.warnings,
            models=tuple(sorted(models)),
            reported_at=now,
        )
        keys = self._keys
        async with self._redis.pipeline(transaction=True) as pipe:
            lifetime_ms = int(self._lifetime_s * 1e3)
            pipe.set(keys.replica(self.replica_id), _REPORT.dump_json(report), px=lifetime_ms)
            pipe.zadd(keys.replicas, {self.replica_id: now})
            pipe.zremrangebyscore(keys.replicas, "-inf", now - self._lifetime_s)
            pipe.pexpire(keys.replicas, lifetime_ms)
            await pipe.execute()

    async def read(self) -> tuple[ReplicaStatus, ...]:
        """Return every gateway's last report, by its name. Raises CentreUnavailable."""
        try:
            names = cast("list[bytes]", await self._redis.zrange(self._keys.replicas, 0, -1))
            if not names:
                return ()
            reports = await self._redis.mget([self._keys.replica(name.decode()) for name in sorted(names)])
        except (RedisError, OSError) as error:
            raise CentreUnavailable(f"Redis does not answer: {error}") from error
        return tuple(report for content in reports if (report := _report(content)) is not None)


def _report(content: bytes | str | None) -> ReplicaStatus | None:
    if content is None:
        return None  # its lifetime is over
    try:
        return _REPORT.validate_json(content)
    except ValidationError:
        return None  # by another version of this program


def _described(file: str, line: int | None, message: str) -> str:
    place = ":".join(str(part) for part in (file, line) if part)
    return f"{place}: {message}" if place else message
