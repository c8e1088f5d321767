"""Gate and limiter as the settings mean them."""

from __future__ import annotations

import time

from redis.asyncio import Redis

from gateway.keys.copy import KeyCopy
from gateway.keys.file import KeyFile
from gateway.keys.fixed import fixed_keys
from gateway.keys.gate import Gate
from gateway.keys.limiter import Limiter, LimiterSettings
from gateway.keys.names import KeyNames
from gateway.keys.store import KeySources, KeyStore
from gateway.settings import GatewaySettings
from gateway.telemetry.metrics import Metrics


def open_gate(settings: GatewaySettings, redis: Redis) -> Gate:
    """Return the gate. Raises ConfigError where the file of keys cannot serve."""
    namespace = settings.config_namespace
    sources = KeySources(
        file=KeyFile(settings.keys_file) if settings.keys_file else None,
        redis=redis,
        names=KeyNames(namespace),
        copy=KeyCopy(settings.state_dir / f"keys-{namespace}.json"),
        poll_s=settings.config_poll_s,
    )
    return Gate(KeyStore(sources, time.time), fixed_keys(settings), settings.keyless)


def open_limiter(settings: GatewaySettings, redis: Redis, metrics: Metrics) -> Limiter:
    limits = LimiterSettings(settings.config_namespace, settings.limit_timeout_s, settings.lease_s)
    return Limiter(redis, limits, metrics, time.monotonic)
