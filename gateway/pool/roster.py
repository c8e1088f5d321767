"""The workers that are registered at run time, in Redis, so that all gateways of a namespace have them.

An entry may also be about a worker of ``NG_WORKERS``: that it drains. Lifetimes are counted by Redis's own
clock, since the gateways' may differ.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import cast

import orjson
from redis.asyncio import Redis
from redis.exceptions import RedisError

from gateway.errors import Conflict, StoreUnavailable
from gateway.telemetry.logs import log

MAX_WORKERS = 1_000
RETRY_AFTER_S = 1.0

REGISTER = """
-- KEYS[1]: hash of url to entry.
-- ARGV: url, lifetime in ms or '', by, drains ('1' or ''), most entries, buckets ('0,1', '' for all).
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 and redis.call('HLEN', KEYS[1]) >= tonumber(ARGV[5]) then
  return 0
end
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local entry = {by = ARGV[3], drains = ARGV[4] == '1', at = now_ms, buckets = ARGV[6]}
if ARGV[2] ~= '' then entry['ends'] = now_ms + tonumber(ARGV[2]) end
redis.call('HSET', KEYS[1], ARGV[1], cjson.encode(entry))
return 1
"""
READ = """
-- KEYS[1] as above. Returns url, entry, ms left or -1, and so on; what has ended is taken out.
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local found, all = {}, redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  local ends = cjson.decode(all[i + 1])['ends']
  if ends and ends <= now_ms then
    redis.call('HDEL', KEYS[1], all[i])
  else
    table.insert(found, all[i])
    table.insert(found, all[i + 1])
    table.insert(found, ends and ends - now_ms or -1)
  end
end
return found
"""

logger = logging.getLogger(__name__)


def roster_key(namespace: str) -> str:
    """Hash: a worker's URL to what is registered of it, as JSON."""
    return f"ng:{{pool:{namespace}}}:workers"


@dataclass(frozen=True, slots=True)
class Wish:
    """What somebody wants of a worker. Without a lifetime it stays until it is taken out."""

    url: str
    lifetime_s: float | None = None
    drains: bool = False
    buckets: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Registration:
    """One worker as somebody registered it."""

    url: str
    registered_by: str
    registered_at: float
    """Unix time by Redis's clock, seconds."""
    drains: bool
    """It gets no new turns; open ones finish."""
    lifetime_left_s: float | None
    """None where it stays until it is taken out."""
    buckets: tuple[int, ...] = ()
    """What it is for, ascending; none are all, or what NG_WORKER_BUCKETS says."""


class Roster:
    """Reads and changes the registrations. Raises StoreUnavailable where Redis does not answer."""

    def __init__(self, redis: Redis, namespace: str) -> None:
        self._redis = redis
        self._key = roster_key(namespace)
        self._register = redis.register_script(REGISTER)
        self._read = redis.register_script(READ)

    async def register(self, wish: Wish, by: str) -> None:
        """Write an entry anew, its lifetime from now. Raises Conflict where there are too many."""
        lifetime_ms = "" if wish.lifetime_s is None else int(wish.lifetime_s * 1e3)
        buckets = ",".join(map(str, sorted(set(wish.buckets))))
        arguments = [wish.url, lifetime_ms, by, "1" if wish.drains else "", MAX_WORKERS, buckets]
        try:
            is_written = await self._register(keys=[self._key], args=arguments)
        except (RedisError, OSError) as error:
            raise StoreUnavailable(retry_after_s=RETRY_AFTER_S) from error
        if not is_written:
            raise Conflict(f"There are {MAX_WORKERS} registered workers already; take one out first.")

    async def remove(self, url: str) -> bool:
        """Take an entry out; returns whether it was there."""
        try:
            return bool(await self._redis.hdel(self._key, url))
        except (RedisError, OSError) as error:
            raise StoreUnavailable(retry_after_s=RETRY_AFTER_S) from error

    async def read(self) -> tuple[Registration, ...]:
        """Return what is registered, by URL; what has outlived its lifetime is taken out."""
        try:
            found = cast("list[bytes | int]", await self._read(keys=[self._key]))
        except (RedisError, OSError) as error:
            raise StoreUnavailable(retry_after_s=RETRY_AFTER_S) from error
        rows = zip(found[::3], found[1::3], found[2::3], strict=True)
        entries = (_registration(*cast("tuple[bytes, bytes, int]", row)) for row in rows)
        return tuple(sorted(entries, key=lambda entry: entry.url))

    async def watch(self, follow: Callable[[Collection[Registration]], None], interval_s: float) -> None:
        """Hand what is registered to ``follow`` at the interval, until cancelled.

        While Redis is away nothing is handed over: the workers that are known stay.
        """
        while True:
            try:
                follow(await self.read())
            except StoreUnavailable as error:
                log(logger, logging.DEBUG, "workers_not_read", reason=str(error.__cause__))
            await asyncio.sleep(interval_s)


def _registration(url: bytes, content: bytes, left_ms: int) -> Registration:
    entry = orjson.loads(content)
    return Registration(
        url=url.decode(),
        registered_by=entry["by"],
        registered_at=entry["at"] / 1e3,
        drains=entry["drains"],
        lifetime_left_s=None if left_ms < 0 else left_ms / 1e3,
        buckets=_buckets(entry.get("buckets", "")),  # entries of an earlier version have none
    )


def _buckets(text: str) -> tuple[int, ...]:
    return tuple(int(bucket) for bucket in text.split(",") if bucket)
