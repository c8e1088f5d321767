"""Expected s: the calibration at first, then a running mean that all gateways share in Redis."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from gateway.flow.bucket import KEY_PREFIX, TaskEntropies, bucket_of
from gateway.store.document import CalibrationSection, TaskDocument

WEIGHT = 0.2


@pytest.fixture
async def redis(valkey_url: str) -> AsyncIterator[Redis]:
    client = Redis.from_url(valkey_url)
    yield client
    await client.aclose()


@pytest.fixture
def task() -> TaskDocument:
    """A task of this test alone, calibrated at s = 0.3."""
    calibration = CalibrationSection(model="m", temperature=1.0, s_mean=0.3)
    return TaskDocument(task_type=f"task_{uuid.uuid4().hex}", calibration=calibration)


def test_a_bucket_is_the_range_between_two_edges() -> None:
    edges = (0.10, 0.15, 0.20)
    assert [bucket_of(s, edges) for s in (0.0, 0.09, 0.10, 0.149, 0.15, 0.2, 0.9)] == [0, 0, 1, 1, 2, 3, 3]
    assert bucket_of(None, edges) == 2
    assert bucket_of(0.5, ()) == bucket_of(None, ()) == 0


async def test_before_any_history_the_calibration_speaks(redis: Redis, task: TaskDocument) -> None:
    entropies = TaskEntropies(redis, WEIGHT)
    assert entropies.expected_s(task, "m") == 0.3
    assert entropies.expected_s(task.model_copy(update={"calibration": None}), "m") is None


async def test_the_mean_is_plain_at_first_and_exponential_later(redis: Redis, task: TaskDocument) -> None:
    entropies = TaskEntropies(redis, WEIGHT)
    observed = [0.1, 0.2, 0.1, 0.4, 0.1, 0.2, 0.3]
    expected = 0.3
    for turns, s in enumerate(observed, start=1):
        expected += max(WEIGHT, 1 / (turns + 1)) * (s - expected)  # the calibration counts as one turn
    for s in observed:
        entropies.observe(task, "m", s)
    await entropies.refresh([task.task_type])
    assert entropies.expected_s(task, "m") == pytest.approx(expected, rel=1e-9)
    assert entropies.expected_s(task, "another model") == 0.3


async def test_two_gateways_learn_from_each_other(redis: Redis, task: TaskDocument) -> None:
    one, other = TaskEntropies(redis, WEIGHT), TaskEntropies(redis, WEIGHT)
    one.observe(task, "m", 0.1)
    await one.refresh([task.task_type])
    await other.refresh([task.task_type])
    assert other.expected_s(task, "m") == pytest.approx(0.2)  # (0.3 + 0.1) / 2
    other.observe(task, "m", 0.5)
    await other.refresh([task.task_type])
    await one.refresh([task.task_type])
    assert one.expected_s(task, "m") == pytest.approx(0.3)  # (0.3 + 0.1 + 0.5) / 3


async def test_an_observation_is_written_once(redis: Redis, task: TaskDocument) -> None:
    entropies = TaskEntropies(redis, WEIGHT)
    entropies.observe(task, "m", 0.1)
    for _ in range(3):
        await entropies.refresh([task.task_type])
    assert await redis.hget(KEY_PREFIX + task.task_type, "turns:m") == b"1"
    assert await redis.ttl(KEY_PREFIX + task.task_type) > 0
