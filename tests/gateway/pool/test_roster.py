"""The workers that are registered at run time, in a real Valkey."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any
from uuid import uuid4

import orjson
import pytest
from redis.asyncio import Redis

from gateway.errors import Conflict, StoreUnavailable
from gateway.pool import roster as module
from gateway.pool.roster import Roster, Wish, roster_key

WaitUntil = Callable[..., Any]
URL = "http://10.0.0.7:8081"


@pytest.fixture
async def redis(valkey_url: str) -> AsyncIterator[Redis]:
    async with Redis.from_url(valkey_url) as connected:
        yield connected


@pytest.fixture
def namespace() -> str:
    return uuid4().hex


async def test_what_one_gateway_registers_another_reads(redis: Redis, namespace: str) -> None:
    await Roster(redis, namespace).register(Wish(URL, drains=True, buckets=(3, 0, 3)), "admin key")
    [entry] = await Roster(redis, namespace).read()
    assert (entry.url, entry.registered_by, entry.drains, entry.lifetime_left_s, entry.buckets) == (
        URL,
        "admin key",
        True,
        None,
        (0, 3),
    )
    seconds, _ = await redis.time()
    assert abs(entry.registered_at - seconds) < 30
    assert await Roster(redis, uuid4().hex).read() == ()


async def test_a_lifetime_ends_unless_it_is_begun_anew(redis: Redis, namespace: str) -> None:
    roster = Roster(redis, namespace)
    await roster.register(Wish(URL, lifetime_s=50.0), "a")
    await _age(redis, namespace, 40.0)
    [entry] = await roster.read()
    assert entry.lifetime_left_s is not None
    assert 0 < entry.lifetime_left_s <= 10.0
    await roster.register(Wish(URL, lifetime_s=50.0), "a")
    [entry] = await roster.read()
    assert entry.lifetime_left_s is not None
    assert 40.0 < entry.lifetime_left_s <= 50.0
    await _age(redis, namespace, 60.0)
    assert await roster.read() == ()
    assert await redis.exists(roster_key(namespace)) == 0


async def test_an_entry_is_taken_out_once(redis: Redis, namespace: str) -> None:
    roster = Roster(redis, namespace)
    await roster.register(Wish(URL), "a")
    assert [await roster.remove(URL), await roster.remove(URL)] == [True, False]


async def test_the_hash_is_bounded_and_a_known_worker_can_still_be_refreshed(
    redis: Redis, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_WORKERS", 2)
    roster = Roster(redis, namespace)
    for number in range(2):
        await roster.register(Wish(f"http://w{number}"), "a")
    with pytest.raises(Conflict):
        await roster.register(Wish("http://w2"), "a")
    await roster.register(Wish("http://w1", drains=True), "a")
    assert [entry.drains for entry in await roster.read()] == [False, True]


async def test_an_entry_of_an_earlier_version_is_for_all_buckets(redis: Redis, namespace: str) -> None:
    entry = {"by": "a", "drains": False, "at": 0}
    await redis.hset(roster_key(namespace), URL, orjson.dumps(entry))
    [read] = await Roster(redis, namespace).read()
    assert (read.url, read.buckets) == (URL, ())


async def test_without_redis_reading_says_so(free_port: Callable[[], int]) -> None:
    async with Redis.from_url(f"redis://127.0.0.1:{free_port()}/0") as nowhere:
        with pytest.raises(StoreUnavailable):
            await Roster(nowhere, "x").read()


async def _age(redis: Redis, namespace: str, seconds: float) -> None:
    """Make every entry older, which is what waiting would do."""
    key = roster_key(namespace)
    for url, content in (await redis.hgetall(key)).items():
        entry = orjson.loads(content)
        await redis.hset(key, url, orjson.dumps({**entry, "ends": entry["ends"] - int(seconds * 1e3)}))
