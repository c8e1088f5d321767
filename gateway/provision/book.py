"""Which keys a command works on: those of a file, or those of a fleet in Redis."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from redis import Redis
from redis.exceptions import RedisError

from gateway.errors import CommandError, ConfigError
from gateway.keys.file import KeyFile
from gateway.keys.fleet import FleetKeys
from gateway.keys.key import Key
from gateway.keys.names import KeyNames
from gateway.stack.environment import described
from gateway.stack.target import Target

T = TypeVar("T")


class KeyBook(Protocol):
    """Where keys are kept."""

    def read(self) -> Mapping[str, Key]:
        """Return the keys by id."""

    def change(self, key_id: str, changed: Callable[[Key | None], Key]) -> Key:
        """Replace one key by what ``changed`` makes of it; None is a key that there is not yet."""


@dataclass(frozen=True, slots=True)
class KeyTarget:
    """Without a file it is the fleet's: Redis and namespace as given, else as the environment says."""

    file: Path | None = None
    redis: str | None = None
    namespace: str | None = None

    def work(self, do: Callable[[KeyBook], T]) -> T:
        """Return what ``do`` makes of the keys. Raises CommandError where they cannot be read or written."""
        try:
            if self.file is not None:
                return do(KeyFile(self.file))
            settings = Target(redis=self.redis, namespace=self.namespace).settings()
            timeout_s = settings.redis_timeout_s
            url = settings.redis_url.get_secret_value()
            with Redis.from_url(url, socket_timeout=timeout_s, socket_connect_timeout=timeout_s) as redis:
                return do(FleetKeys(redis, KeyNames(settings.config_namespace)))
        except ConfigError as error:
            raise CommandError(described(error)) from error
        except (RedisError, OSError) as error:
            raise CommandError(f"Redis does not answer: {error}") from error
