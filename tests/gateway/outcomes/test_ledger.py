"""Exposures and outcomes in a real Valkey: once each, bounded, and in nobody's way when Redis is gone."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from typing import Any
from uuid import uuid4

import pytest
from redis.asyncio import Redis

from gateway.outcomes.entry import Exposure, TurnOutcome, decode_entry, exposed_key, outcomes_key
from gateway.outcomes.ledger import MAX_WAITING, Bounds, Experiment, Ledger
from gateway.settings import GatewaySettings
from gateway.store.connection import open_redis
from gateway.telemetry.metrics import Metrics

BOUNDS = Bounds(max_entries=1_000, ttl_s=3_600)
DEADLINE_S = 20.0


@pytest.fixture
def experiment() -> Experiment:
    return Experiment(f"ledger-{uuid4().hex[:8]}", 3)


@pytest.fixture
async def redis(valkey_url: str) -> AsyncIterator[Redis]:
    client = Redis.from_url(valkey_url)
    yield client
    await client.aclose()


def exposure(unit: str = "ada", arm: str = "treatment") -> Exposure:
    return Exposure(unit, arm, 1_700_000_000.5)


def outcome(turn_id: str) -> TurnOutcome:
    return TurnOutcome(turn_id, "ada", "treatment", 1_700_000_001.0, {"latency_s": 0.1 + 0.2, "error": 0.0})


async def entries(redis: Redis, experiment: Experiment) -> list[Any]:
    found: Any = await redis.xrange(outcomes_key(*experiment))
    return [decode_entry(fields) for _, fields in found]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110 - what it waits for has no event
            await asyncio.sleep(0.01)


async def test_entries_come_back_as_they_were(redis: Redis, experiment: Experiment) -> None:
    ledger = Ledger(redis, "one", BOUNDS, Metrics())
    ledger.expose(experiment, exposure(), is_sticky=True)
    ledger.add(experiment, outcome("turn-1"))
    await ledger.close()
    assert await entries(redis, experiment) == [exposure(), outcome("turn-1")]
    assert 0 < await redis.ttl(outcomes_key(*experiment)) <= BOUNDS.ttl_s
    assert 0 < await redis.ttl(exposed_key(*experiment, "ada")) <= BOUNDS.ttl_s


async def test_a_unit_is_exposed_once_however_many_gateways_bring_it(
    redis: Redis, experiment: Experiment
) -> None:
    ledgers = [Ledger(redis, name, BOUNDS, Metrics()) for name in ("one", "two", "three")]
    for _ in range(5):
        for ledger in ledgers:
            ledger.expose(experiment, exposure(), is_sticky=True)
    assert [ledger.num_waiting for ledger in ledgers] == [1, 1, 1]
    await asyncio.gather(*(ledger.close() for ledger in ledgers))
    assert await entries(redis, experiment) == [exposure()]


async def test_another_version_is_another_experiment(redis: Redis, experiment: Experiment) -> None:
    ledger = Ledger(redis, "one", BOUNDS, Metrics())
    later = Experiment(experiment.id, 4)
    for each in (experiment, later):
        ledger.expose(each, exposure(), is_sticky=True)
    await ledger.close()
    assert await entries(redis, experiment) == await entries(redis, later) == [exposure()]


async def test_a_lane_that_does_not_stick_leaves_no_key_behind(redis: Redis, experiment: Experiment) -> None:
    ledger = Ledger(redis, "one", BOUNDS, Metrics())
    for turn_id in ("turn-1", "turn-2"):
        ledger.expose(experiment, exposure(turn_id), is_sticky=False)
    await ledger.close()
    assert await entries(redis, experiment) == [exposure("turn-1"), exposure("turn-2")]
    assert not await redis.exists(exposed_key(*experiment, "turn-1"))


async def test_the_stream_is_bounded(redis: Redis, experiment: Experiment) -> None:
    ledger = Ledger(redis, "one", Bounds(100, 3_600), Metrics())
    for number in range(500):
        ledger.add(experiment, outcome(f"turn-{number}"))
    await ledger.close()
    # Trimming is approximate: whole nodes of 100 entries.
    assert await redis.xlen(outcomes_key(*experiment)) <= 200


async def test_what_timed_out_but_was_carried_out_is_not_written_twice(
    start_valkey: Any, experiment: Experiment
) -> None:
    valkey = start_valkey()
    settings = GatewaySettings(redis_url=valkey.url, redis_timeout_s=0.3)
    redis, metrics = open_redis(settings), Metrics()
    ledger = Ledger(redis, "one", BOUNDS, metrics)
    ledger.add(experiment, outcome("turn-0"))
    writing = asyncio.create_task(ledger.watch())
    await until(lambda: ledger.num_waiting == 0)
    valkey.signal(signal.SIGSTOP)
    ledger.expose(experiment, exposure(), is_sticky=True)
    for number in range(1, 4):
        ledger.add(experiment, outcome(f"turn-{number}"))
    await until(lambda: metrics.outcome_failures._value.get() >= 2)
    valkey.signal(signal.SIGCONT)
    await until(lambda: ledger.num_waiting == 0)
    writing.cancel()
    async with Redis.from_url(valkey.url) as looking:
        assert await entries(looking, experiment) == [
            outcome("turn-0"),
            exposure(),
            *(outcome(f"turn-{number}") for number in range(1, 4)),
        ]
    await redis.aclose()
    valkey.end()


async def test_an_exposure_that_fell_out_is_brought_by_the_next_turn(
    free_port: Callable[[], int], experiment: Experiment
) -> None:
    redis, metrics = Redis.from_url(f"redis://127.0.0.1:{free_port()}/0"), Metrics()
    ledger = Ledger(redis, "one", BOUNDS, metrics)
    ledger.expose(experiment, exposure(), is_sticky=True)
    for number in range(MAX_WAITING):
        ledger.add(experiment, outcome(f"turn-{number}"))
    assert metrics.outcomes_not_written._value.get() == 1
    ledger.expose(experiment, exposure(), is_sticky=True)
    assert metrics.outcomes_not_written._value.get() == 2
    assert ledger.num_waiting == MAX_WAITING
    await redis.aclose()
