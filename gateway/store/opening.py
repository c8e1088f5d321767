"""Which store the settings mean."""

from __future__ import annotations

from collections.abc import Callable

from redis import Redis
from redis.asyncio import Redis as AsyncRedis
from redis.backoff import NoBackoff
from redis.retry import Retry

from gateway.settings import GatewaySettings
from gateway.store.backend import ConfigFolder
from gateway.store.centre import ConfigCentre
from gateway.store.folder_centre import FolderCentre
from gateway.store.folder_source import FolderSource
from gateway.store.guards import JumpLimits
from gateway.store.last_good import LastGood
from gateway.store.loading import ConfigSource
from gateway.store.proposal import Rules, builds_nothing
from gateway.store.redis_centre import RedisCentre
from gateway.store.redis_source import RedisSettings, RedisSource
from gateway.store.snapshot import Snapshot
from gateway.store.watch import ConfigStore


def open_centre(
    settings: GatewaySettings, dry_build: Callable[[Snapshot], None] = builds_nothing
) -> ConfigCentre:
    """Return the centre that people publish to. Nothing is connected yet.

    ``dry_build`` builds what a gateway makes of a snapshot, so that what would not serve is never published.
    """
    rules = Rules(JumpLimits.of(settings), dry_build)
    if settings.config_store == "files":
        return FolderCentre(settings.config_dir, rules, settings.config_namespace)
    return _redis_centre(settings, rules)


def open_store(
    settings: GatewaySettings,
    bell: AsyncRedis,
    clock: Callable[[], float],
    dry_build: Callable[[Snapshot], None],
) -> ConfigStore:
    """Return the configuration in force. Raises ConfigError where there is none that can serve.

    ``bell`` is the client that listens for changes. Blocks until the first snapshot is there.
    """
    source: ConfigSource
    if settings.config_store == "files":
        source = FolderSource(ConfigFolder(settings.config_dir))
    else:
        centre = _redis_centre(settings, Rules(JumpLimits.of(settings), dry_build))
        copy = LastGood(settings.state_dir / f"{settings.config_namespace}.json")
        source = RedisSource(centre, bell, RedisSettings(settings.config_dir, copy, settings.config_poll_s))
    return ConfigStore(source, clock, dry_build)


def _redis_centre(settings: GatewaySettings, rules: Rules) -> RedisCentre:
    redis = Redis.from_url(
        settings.redis_url.get_secret_value(),
        socket_timeout=settings.redis_timeout_s,
        socket_connect_timeout=settings.redis_timeout_s,
        retry=Retry(NoBackoff(), 0),
    )
    return RedisCentre(redis, settings.config_namespace, rules)
