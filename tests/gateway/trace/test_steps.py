"""A turn's steps, read from a real Valkey."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from redis.asyncio import Redis

from gateway.errors import TraceError
from gateway.trace.steps import read_steps, wait_for_steps
from worker.protocol import StepRecord, pack_steps, trace_key


def step(number: int) -> StepRecord:
    # Values that float32 holds exactly, so that what comes back is equal.
    return StepRecord(number, -0.5, 1.5, 0.125, 0.875, 1.0, 0.5, 7, 1.0, 0.75, 0.25, 1.0, 2, 0, number, 3)


STEPS = tuple(step(number) for number in range(70))


@pytest_asyncio.fixture
async def redis(valkey_url: str) -> AsyncIterator[Redis]:
    async with Redis.from_url(valkey_url) as client:
        yield client


@pytest.fixture
def turn_id() -> str:
    return f"test-{uuid.uuid4().hex}"


async def add(redis: Redis, turn_id: str, first: int, last: int, choice: int = 0) -> None:
    await redis.xadd(trace_key(turn_id), pack_steps(first, STEPS[first:last], choice=choice))  # type: ignore[arg-type]


async def end(redis: Redis, turn_id: str, total: int, choice: int = 0) -> None:
    await redis.xadd(trace_key(turn_id), {"end": "stop", "choice": str(choice), "n": str(total)})


async def test_entries_of_several_choices_come_back_as_each_choices_steps(redis: Redis, turn_id: str) -> None:
    await add(redis, turn_id, 0, 32)
    await add(redis, turn_id, 0, 5, choice=1)
    await add(redis, turn_id, 32, 64)
    await end(redis, turn_id, 5, choice=1)
    await add(redis, turn_id, 64, 70)
    await end(redis, turn_id, 70)
    first, second = await read_steps(redis, turn_id)
    assert (first.choice, first.steps, first.finish_reason) == (0, STEPS, "stop")
    assert (second.choice, second.steps, second.finish_reason) == (1, STEPS[:5], "stop")


async def test_entries_that_arrived_out_of_order_are_put_in_order(redis: Redis, turn_id: str) -> None:
    await add(redis, turn_id, 32, 64)
    await add(redis, turn_id, 0, 32)
    assert (await read_steps(redis, turn_id))[0].steps == STEPS[:64]


async def test_a_gap_is_named(redis: Redis, turn_id: str) -> None:
    await add(redis, turn_id, 0, 32)
    await add(redis, turn_id, 40, 64)
    with pytest.raises(TraceError, match="steps 32 to 39 are missing"):
        await read_steps(redis, turn_id)


async def test_steps_lost_at_the_end_are_noticed(redis: Redis, turn_id: str) -> None:
    await add(redis, turn_id, 0, 32)
    await end(redis, turn_id, 70)
    with pytest.raises(TraceError, match="32 of 70 steps are there"):
        await read_steps(redis, turn_id)


async def test_a_damaged_entry_is_an_error(redis: Redis, turn_id: str) -> None:
    await redis.xadd(trace_key(turn_id), {"first": "0", "n": "3", "choice": "0", "token_id": b"xx"})
    with pytest.raises(TraceError, match="damaged"):
        await read_steps(redis, turn_id)


async def test_more_entries_than_one_page_are_all_read(redis: Redis, turn_id: str) -> None:
    async with redis.pipeline() as pipeline:
        for number in range(1_050):
            pipeline.xadd(trace_key(turn_id), pack_steps(number, [step(number)]))  # type: ignore[arg-type]
        await pipeline.execute()
    steps = (await read_steps(redis, turn_id))[0].steps
    assert [record.token_id for record in steps] == list(range(1_050))


async def test_waiting_ends_once_the_end_is_there(redis: Redis, turn_id: str) -> None:
    waiting = asyncio.create_task(wait_for_steps(redis, turn_id, timeout_s=10.0))
    await add(redis, turn_id, 0, 3)
    await end(redis, turn_id, 3)
    assert (await waiting)[0].steps == STEPS[:3]


async def test_waiting_for_a_trace_that_never_ends_says_what_is_missing(redis: Redis, turn_id: str) -> None:
    await add(redis, turn_id, 0, 3)
    with pytest.raises(TraceError, match="not complete after 0 s"):
        await wait_for_steps(redis, turn_id, timeout_s=0.2)
