"""An experiment's stream read back from a real Valkey: joined, counted, and never stopped by damage."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest
from redis.asyncio import Redis

from gateway.lab.observations import Exposed, Observations
from gateway.outcomes.entry import Entry, Exposure, Feedback, TurnOutcome, encode_entry, outcomes_key
from gateway.outcomes.read import num_entries, read_observations


@pytest.fixture
async def redis(valkey_url: str) -> AsyncIterator[Redis]:
    client = Redis.from_url(valkey_url)
    yield client
    await client.aclose()


@pytest.fixture
def experiment() -> str:
    return f"read-{uuid4().hex[:8]}"


async def written(redis: Redis, experiment: str, *entries: Entry | dict[str, Any]) -> Observations:
    """Write entries, or fields as they are, to version 2 and read them back."""
    pipe = redis.pipeline(transaction=False)
    for entry in entries:
        fields: Any = entry if isinstance(entry, dict) else encode_entry(entry)
        pipe.xadd(outcomes_key(experiment, 2), fields)
    await pipe.execute()
    return await read_observations(redis, experiment, 2)


def outcome(turn_id: str, unit: str = "ada", **values: float) -> TurnOutcome:
    return TurnOutcome(turn_id, unit, "control", 20.0, values)


async def test_exposures_and_turns_come_back(redis: Redis, experiment: str) -> None:
    shadow = TurnOutcome("t2", "ada", "control", 21.5, {}, shadow_of="t1")
    found = await written(
        redis, experiment, Exposure("ada", "treatment", 10.5), outcome("t1", latency_s=0.25), shadow
    )
    assert found.exposures == {"ada": Exposed("treatment", 10.5)}
    first, second = found.turns
    assert (first.id, first.unit, first.arm, first.at, first.values) == (
        *("t1", "ada", "control", 20.0),
        {"latency_s": 0.25},
    )
    assert (second.at, second.shadow_of) == (21.5, "t1")
    assert (found.num_damaged, found.num_unknown_feedback, found.moved_units) == (0, 0, frozenset())


async def test_the_last_feedback_of_a_name_counts_whenever_it_comes(redis: Redis, experiment: str) -> None:
    found = await written(
        redis,
        experiment,
        Feedback("t1", "useful", 5.0, 30.0),  # before its turn is written
        outcome("t1", error=0.0),
        Feedback("t1", "useful", 1.0, 31.0),
        Feedback("t1", "clear", 2.0, 32.0),
        outcome("t2"),
        Feedback("t1", "useful", 3.0, 9_999_999.0),
        Feedback("gone", "useful", 4.0, 33.0),
        Feedback("gone", "useful", 4.0, 33.0),
    )
    first, second = found.turns
    assert first.values == {"error": 0.0, "feedback:useful": 3.0, "feedback:clear": 2.0}
    assert second.values == {}
    assert found.num_unknown_feedback == 1


async def test_damaged_entries_are_counted_and_left_out(redis: Redis, experiment: str) -> None:
    good = encode_entry(outcome("t1"))
    found = await written(
        redis,
        experiment,
        {"nonsense": "1"},
        {**good, "kind": "of another program"},
        {**good, "values": "[1, 2]"},
        {**good, "values": '{"latency_s": null}'},
        {**good, "values": '{"latency_s":'},
        {**good, "at": "noon"},
        {**good, "unit": b"\xff\xfe"},
        {**good, "of_a_later_version": "1"},
    )
    assert [turn.id for turn in found.turns] == ["t1"]
    assert found.num_damaged == 7


async def test_a_unit_in_two_arms_is_named_and_a_turn_twice_counts_once(
    redis: Redis, experiment: str
) -> None:
    found = await written(
        redis,
        experiment,
        Exposure("ada", "treatment", 10.0),
        Exposure("ada", "treatment", 11.0),
        Exposure("bob", "treatment", 10.0),
        Exposure("bob", "control", 11.0),
        outcome("t1", latency_s=1.0),
        outcome("t1", latency_s=2.0),
    )
    assert found.moved_units == {"bob"}
    assert found.exposures["ada"] == Exposed("treatment", 10.0)
    assert [turn.values for turn in found.turns] == [{"latency_s": 2.0}]


async def test_a_long_stream_is_read_whole(redis: Redis, experiment: str) -> None:
    entries = [outcome(f"t{number}", unit=f"u{number}") for number in range(1_234)]
    found = await written(redis, experiment, *entries)
    assert [turn.id for turn in found.turns] == [f"t{number}" for number in range(1_234)]
    assert await num_entries(redis, experiment, 2) == 1_234


async def test_no_stream_is_nothing_observed(redis: Redis, experiment: str) -> None:
    assert await read_observations(redis, experiment, 7) == Observations()
    assert await num_entries(redis, experiment, 7) == 0
