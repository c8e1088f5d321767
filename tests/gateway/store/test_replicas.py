from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from redis.asyncio import Redis

from gateway.errors import CentreUnavailable
from gateway.settings import GatewaySettings
from gateway.store.keys import ConfigKeys
from gateway.store.replicas import ReplicaBoard
from gateway.store.watch import LoadError, StoreStatus

STATUS = StoreStatus(
    sha="a" * 64, loaded_at=10.0, last_error=None, num_reloads=2, number=7, age_s=3.5, warnings=("careful",)
)


@pytest.fixture
async def connection(valkey_url: str) -> AsyncIterator[Redis]:
    async with Redis.from_url(valkey_url) as redis:
        yield redis


def board(redis: Redis, namespace: str, name: str, now: float = 1000.0) -> ReplicaBoard:
    settings = GatewaySettings(config_namespace=namespace, replica_id=name)
    return ReplicaBoard(redis, settings, lambda: now)


async def test_everybody_sees_what_each_gateway_serves(connection: Redis, namespace: str) -> None:
    one, two = board(connection, namespace, "one"), board(connection, namespace, "two")
    assert await one.read() == ()
    await two.report(replace(STATUS, number=6, last_error=LoadError("tasks/t", 3, "is bad", 1.0)), [])
    await one.report(STATUS, ["small", "large"])
    first, second = await two.read()
    assert (first.replica_id, first.number, first.sha, first.age_s) == ("one", 7, "a" * 64, 3.5)
    assert (first.models, first.warnings, first.last_error) == (("large", "small"), ("careful",), None)
    assert (first.store, first.reported_at, first.is_last_good) == ("files", 1000.0, False)
    assert (second.replica_id, second.number, second.last_error) == ("two", 6, "tasks/t:3: is bad")


async def test_a_report_has_a_short_life(connection: Redis, namespace: str) -> None:
    keys = ConfigKeys(namespace)
    await board(connection, namespace, "gone").report(STATUS, [])
    assert 0 < await connection.pttl(keys.replica("gone")) <= 10_000
    await board(connection, namespace, "later", now=1011.0).report(STATUS, [])
    assert await connection.zrange(keys.replicas, 0, -1) == [b"later"]
    await connection.delete(keys.replica("later"))
    assert await board(connection, namespace, "later").read() == ()


async def test_a_gateway_without_a_name_has_its_host_and_process(connection: Redis) -> None:
    assert ":" in ReplicaBoard(connection, GatewaySettings()).replica_id


async def test_redis_away_ends_no_watch(namespace: str) -> None:
    async with Redis.from_url("redis://127.0.0.1:1/0") as nowhere:
        away = board(nowhere, namespace, "one")
        with pytest.raises(CentreUnavailable):
            await away.read()
        watch = asyncio.create_task(away.watch(lambda: STATUS, list))
        done, _ = await asyncio.wait([watch], timeout=0.2)
        assert not done
        watch.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watch
