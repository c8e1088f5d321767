"""Keys in Redis, for all gateways of a namespace: read by them, written by the commands."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import cast

from pydantic import ValidationError
from redis import Redis
from redis.asyncio import Redis as AsyncRedis
from redis.client import Pipeline

from gateway.errors import ConfigError
from gateway.keys.key import Key
from gateway.keys.names import KeyNames
from gateway.telemetry.logs import log

logger = logging.getLogger(__name__)


async def read_fleet(redis: AsyncRedis, names: KeyNames) -> Mapping[str, Key]:
    """Return the keys by id. Raises RedisError or OSError where Redis does not answer."""
    stored = await cast("object", redis.hgetall(names.keys))  # type: ignore[misc]
    return parsed(cast("Mapping[bytes, bytes]", stored))


def parsed(stored: Mapping[bytes, bytes]) -> Mapping[str, Key]:
    """Return what can be read. An entry that cannot opens nothing, and takes no other with it."""
    keys = {}
    for key_id, content in stored.items():
        try:
            key = Key.model_validate_json(content)
        except ValidationError:
            key = None
        if key is None or key.id.encode() != key_id:
            log(logger, logging.ERROR, "key_unreadable", key_id=key_id.decode("utf-8", "replace"))
            continue
        keys[key.id] = key
    return keys


class FleetKeys:
    """What the commands change. Every method raises RedisError or OSError where Redis does not answer."""

    def __init__(self, redis: Redis, names: KeyNames) -> None:
        self._redis = redis
        self._names = names

    def read(self) -> Mapping[str, Key]:
        return parsed(cast("Mapping[bytes, bytes]", self._redis.hgetall(self._names.keys)))

    def change(self, key_id: str, changed: Callable[[Key | None], Key]) -> Key:
        """Replace one key by what ``changed`` makes of it, whoever else changes it meanwhile, and ring.

        Raises ConfigError for an entry that cannot be read: what it says would be lost.
        """

        def work(pipe: Pipeline) -> Key:
            content = cast("bytes | None", pipe.hget(self._names.keys, key_id))
            key = changed(None if content is None else _readable(key_id, content))
            pipe.multi()
            pipe.hset(self._names.keys, key_id, key.model_dump_json(exclude_defaults=True))
            pipe.publish(self._names.bell, "")
            return key

        key = self._redis.transaction(work, self._names.keys, value_from_callable=True)  # type: ignore[arg-type]
        return cast("Key", key)


def _readable(key_id: str, content: bytes) -> Key:
    try:
        return Key.model_validate_json(content)
    except ValidationError:
        raise ConfigError(f"the key {key_id} was written by another version, or is damaged") from None
