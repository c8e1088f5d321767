"""A key's limits: in Redis over several gateways, in memory while Redis is away; both do the same sums."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from redis import Redis as PlainRedis
from redis.asyncio import Redis

from gateway.keys.key import Key
from gateway.keys.limiter import Limiter, LimiterSettings, Taken
from gateway.keys.memory import Wanted
from gateway.telemetry.metrics import Metrics
from tests.conftest import StartValkey
from tests.gateway.keys.conftest import made_key, running

AMPLE_S = 5.0
DEADLINE_S = 10.0


class Replica:
    """One gateway's limiter, and what it counted."""

    def __init__(self, url: str, namespace: str, timeout_s: float, lease_s: float) -> None:
        self.metrics = Metrics()
        self.redis = Redis.from_url(url, socket_timeout=AMPLE_S, socket_connect_timeout=AMPLE_S)
        settings = LimiterSettings(namespace, timeout_s, lease_s)
        loop = asyncio.get_running_loop()
        self.limiter = Limiter(self.redis, settings, self.metrics, loop.time)

    @property
    def num_from_memory(self) -> float:
        value = self.metrics.registry.get_sample_value("gravity_limits_from_memory_total")
        assert value is not None
        return value


Open = Callable[..., Replica]


@contextlib.asynccontextmanager
async def replicas(url: str, *, timeout_s: float = AMPLE_S, lease_s: float = 30.0) -> AsyncIterator[Open]:
    """Open limiters that share a namespace; all are closed with the block."""
    namespace = f"test-{uuid.uuid4().hex}"
    opened: list[Replica] = []

    def open_one() -> Replica:
        opened.append(Replica(url, namespace, timeout_s, lease_s))
        return opened[-1]

    try:
        yield open_one
    finally:
        for replica in opened:
            await replica.limiter.close()
            await replica.redis.aclose()


def limited(**limits: int) -> Key:
    return Key.model_validate(made_key("infer", limits=limits).entry)


async def until(condition: Callable[[], Awaitable[Any]]) -> Any:
    """Poll with a deadline."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            if value := await condition():
                return value
            await asyncio.sleep(0.02)


def test_two_gateways_share_what_a_minute_allows(valkey_url: str) -> None:
    async def work() -> None:
        async with replicas(valkey_url) as open_one:
            one, other, key = open_one(), open_one(), limited(requests_per_minute=5)
            taken = [await each.limiter.take(key, Wanted()) for each in (one, other) * 3]
            assert [each.short for each in taken] == [""] * 5 + ["requests"]
            left = [each.standing.headers()["x-ratelimit-remaining-requests"] for each in taken]
            assert left == ["4", "3", "2", "1", "0", "0"]
            # Five a minute is one in twelve seconds, and hardly any time has gone by.
            assert 8.0 < taken[-1].standing.retry_after_s("requests", 0) <= 12.0
            assert one.num_from_memory == other.num_from_memory == 0

    asyncio.run(work())


def test_an_answer_that_costs_more_is_waited_for_by_the_next(valkey_url: str) -> None:
    async def work() -> None:
        async with replicas(valkey_url) as open_one:
            one, other, key = open_one(), open_one(), limited(tokens_per_minute=1_000)
            assert (await one.limiter.take(key, Wanted(1, 400, "turn-1"))).short == ""
            one.limiter.end(key, "turn-1", 1_100)  # 400 were taken, and 1,500 it was
            await one.limiter.close()
            refused = await other.limiter.take(key, Wanted(1, 100))
            assert refused.short == "tokens"
            # 500 owed and 100 wanted, at 1,000 a minute.
            assert 33.0 < refused.standing.retry_after_s("tokens", 100) <= 36.0
            assert refused.standing.headers()["x-ratelimit-remaining-tokens"] == "0"

    asyncio.run(work())


def test_what_was_estimated_too_high_is_given_back(valkey_url: str) -> None:
    async def work() -> None:
        async with replicas(valkey_url) as open_one:
            one, key = open_one(), limited(tokens_per_minute=1_000)
            await one.limiter.take(key, Wanted(1, 900, "turn-1"))
            one.limiter.end(key, "turn-1", -800)
            await one.limiter.close()
            assert (await one.limiter.take(key, Wanted(1, 850))).short == ""

    asyncio.run(work())


def test_a_prompt_longer_than_a_minutes_tokens_needs_a_full_bucket(valkey_url: str) -> None:
    async def work() -> None:
        async with replicas(valkey_url) as open_one:
            one, key = open_one(), limited(tokens_per_minute=100)
            assert (await one.limiter.take(key, Wanted(1, 250))).short == ""
            assert (await one.limiter.take(key, Wanted(1, 1))).short == "tokens"

    asyncio.run(work())


def test_tokens_of_a_running_answer_are_told_while_it_runs(valkey_url: str) -> None:
    async def work() -> None:
        async with replicas(valkey_url) as open_one:
            one, other, key = open_one(), open_one(), limited(tokens_per_minute=50)
            async with running(one.limiter.watches()):
                await one.limiter.take(key, Wanted(1, 10, "turn-1"))
                for _ in range(40):
                    one.limiter.owe(key, 1)

                async def is_refused() -> bool:
                    return (await other.limiter.take(key, Wanted(0, 30))).short == "tokens"

                # The other gateway is refused although the turn has not ended; its own tries take nothing.
                await until(is_refused)

    asyncio.run(work())


def test_turns_at_once_are_counted_over_gateways_and_freed_at_once(valkey_url: str) -> None:
    async def work() -> None:
        async with replicas(valkey_url) as open_one:
            one, other, key = open_one(), open_one(), limited(concurrent_turns=2)
            assert (await one.limiter.take(key, Wanted(1, 0, "a"))).short == ""
            assert (await other.limiter.take(key, Wanted(1, 0, "b"))).short == ""
            assert (await one.limiter.take(key, Wanted(1, 0, "c"))).short == "turns"
            other.limiter.end(key, "b", 0)
            await other.limiter.close()
            assert (await one.limiter.take(key, Wanted(1, 0, "c"))).short == ""

    asyncio.run(work())


def test_the_turns_of_a_gateway_that_died_end_by_themselves_and_a_living_ones_go_on(valkey_url: str) -> None:
    async def work() -> None:
        async with replicas(valkey_url, lease_s=2.0) as open_one:
            dead, living, other = open_one(), open_one(), open_one()
            key = limited(concurrent_turns=2)
            async with running(living.limiter.watches()):
                await dead.limiter.take(key, Wanted(1, 0, "of the dead"))
                await living.limiter.take(key, Wanted(1, 0, "of the living"))

                async def is_free() -> bool:
                    return (await other.limiter.take(key, Wanted(1, 0, "next"))).short == ""

                assert not await is_free()
                await until(is_free)
                # By now the lease of the living would be over too, had nobody renewed it.
                assert (await other.limiter.take(key, Wanted(1, 0, "one more"))).short == "turns"

    asyncio.run(work())


def test_while_redis_is_paused_limits_hold_here_and_afterwards_everywhere(start_valkey: StartValkey) -> None:
    valkey = start_valkey()

    async def work() -> None:
        async with replicas(valkey.url, timeout_s=0.2) as open_one:
            one, other, key = open_one(), open_one(), limited(requests_per_minute=6)
            assert await shorts(one, key, 2) == ["", ""]
            valkey.signal(signal.SIGSTOP)
            # It had heard of four that were left; the other knows of nothing and has a minute's of its own.
            assert await shorts(one, key, 5) == ["", "", "", "", "requests"]
            assert await shorts(other, key, 7) == [""] * 6 + ["requests"]
            assert (one.num_from_memory, other.num_from_memory) == (5, 7)
            valkey.signal(signal.SIGCONT)

            async def asks_redis_again() -> bool:
                before = one.num_from_memory
                await one.limiter.take(key, Wanted(0))
                return one.num_from_memory == before

            assert await until(asks_redis_again)

    try:
        asyncio.run(work())
    finally:
        valkey.end()


async def shorts(replica: Replica, key: Key, num_requests: int) -> list[str]:
    taken: list[Taken] = [await replica.limiter.take(key, Wanted()) for _ in range(num_requests)]
    return [each.short for each in taken]


def test_without_redis_turns_at_once_and_tokens_hold_too(free_port: Callable[[], int]) -> None:
    async def work() -> None:
        async with replicas(f"redis://127.0.0.1:{free_port()}/0") as open_one:
            one, key = open_one(), limited(concurrent_turns=1, tokens_per_minute=100)
            assert (await one.limiter.take(key, Wanted(1, 60, "a"))).short == ""
            assert (await one.limiter.take(key, Wanted(1, 10, "b"))).short == "turns"
            one.limiter.end(key, "a", 30)
            assert (await one.limiter.take(key, Wanted(1, 20, "b"))).short == "tokens"
            assert (await one.limiter.take(key, Wanted(1, 5, "b"))).short == ""

    asyncio.run(work())


def test_other_limits_hold_from_the_next_request_on(valkey_url: str) -> None:
    async def work() -> None:
        async with replicas(valkey_url) as open_one:
            one, key = open_one(), limited(requests_per_minute=100)
            await one.limiter.take(key, Wanted())
            tighter = key.model_copy(update={"limits": limited(requests_per_minute=2).limits})
            assert await shorts(one, tighter, 3) == ["", "", "requests"]

    asyncio.run(work())


@pytest.mark.parametrize("limit", ["requests_per_minute", "tokens_per_minute"])
def test_what_is_in_redis_goes_by_itself(valkey_url: str, limit: str) -> None:
    async def work() -> None:
        async with replicas(valkey_url) as open_one:
            one, key = open_one(), limited(**{limit: 60})
            await one.limiter.take(key, Wanted(1, 10, "a"))
            one.limiter.end(key, "a", 6_000)

    asyncio.run(work())
    with PlainRedis.from_url(valkey_url) as redis:
        names = list(redis.scan_iter("ng:{limit:*", count=1_000))
        assert names
        lifetimes_s = [redis.ttl(name) for name in names]
    assert min(lifetimes_s) > 0
    if limit == "tokens_per_minute":
        # 5,950 tokens owed and 60 to be full again, at one a second: forgotten sooner it would be forgiven.
        assert 5_900 < max(lifetimes_s) <= 6_010
