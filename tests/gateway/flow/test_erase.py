"""What deleting a turn, or a person, leaves in a real Valkey."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest_asyncio
from redis.asyncio import Redis

from gateway.context.embed import encoding_name
from gateway.context.shared_cache import shared_key
from gateway.flow.assign import unit_of, user_key
from gateway.flow.erase import Erased, erase_turn, erase_user
from gateway.flow.record import summary
from gateway.flow.retention import encoded
from gateway.flow.turn import Assignment, Turn
from gateway.outcomes.entry import (
    Entry,
    Exposure,
    Feedback,
    TurnOutcome,
    decode_entry,
    encode_entry,
    exposed_key,
    feedback_key,
    outcomes_key,
)
from gateway.trace.index import Written, write_arguments
from tests.conftest import StartValkey

STREAM = outcomes_key("gain", 1)
ADA, BOB = (unit_of(user_key(name)) for name in ("ada", "bob"))
TENANT = unit_of("header:acme")


@pytest_asyncio.fixture
async def redis(start_valkey: StartValkey) -> AsyncIterator[Redis]:
    """A Valkey of its own: whatever is left in it at the end was left by the test."""
    valkey = start_valkey()
    async with Redis.from_url(valkey.url) as client:
        yield client
    valkey.end()


async def write(redis: Redis, turn: Turn, *, is_listed: bool = True) -> None:
    """Leave of the turn what recorder, worker, feedback and encoder leave."""
    await redis.set(f"ng:turn:{turn.id}", encoded(turn, "full"))
    await redis.xadd(f"ng:trace:{turn.id}", {"end": "stop", "choice": "0", "n": "0"})
    await redis.hset(feedback_key(turn.id), "thumbs", "1.0")
    await redis.set(shared_key("encoder", encoding_name(turn.question)), b"vectors")
    if is_listed:
        await redis.eval(
            *write_arguments([Written(turn.id, encoded(turn, "full"), summary(turn))], 1_000, 600)
        )


async def observe(redis: Redis, *entries: Entry) -> None:
    for entry in entries:
        await redis.xadd(STREAM, encode_entry(entry))  # type: ignore[arg-type]
        if isinstance(entry, Exposure):
            await redis.set(exposed_key("gain", 1, entry.unit), "1")


async def left(redis: Redis) -> list[Entry]:
    entries: Any = await redis.xrange(STREAM)
    return [decode_entry(fields) for _, fields in entries]


async def keys(redis: Redis) -> set[str]:
    return {key.decode() async for key in redis.scan_iter()}


async def test_a_user_leaves_nothing_and_others_stay(redis: Redis, make_turn: Callable[..., Turn]) -> None:
    first = make_turn(id="turn-a1", user="ada", question="where is she", history=("she left",))
    shadow = replace(first, id="turn-a1s", shadow_of="turn-a1")
    trimmed = replace(first, id="turn-a2", question="and now")
    other = replace(first, id="turn-b", user="bob", question="who is he", history=())
    await write(redis, first)
    await write(redis, shadow)
    await write(redis, trimmed, is_listed=False)
    await write(redis, other)
    bobs: list[Entry] = [
        Exposure(BOB, "control", 1.0),
        TurnOutcome("turn-b", BOB, "control", 1.0, {"latency_s": 2.0}),
        Feedback("turn-b", "thumbs", 1.0, 3.0),
    ]
    await observe(
        redis,
        Exposure(ADA, "treatment", 1.0),
        TurnOutcome("turn-a1", ADA, "treatment", 1.0, {"latency_s": 1.0}),
        TurnOutcome("turn-a0", ADA, "", 0.5),  # recorded so long ago that only this is left
        Feedback("turn-a0", "thumbs", 1.0, 0.6),
        *bobs,
        Feedback("turn-a1", "thumbs", 0.0, 2.0),
    )
    erased = await erase_user(redis, "ada")
    assert erased == Erased(turns=2, records=3, traces=3, feedback=3, outcomes=4, exposures=1, encodings=2)
    assert await left(redis) == bobs
    assert await keys(redis) == {
        *("ng:turns", "ng:index:{ng:turns}", "ng:turn:turn-b", "ng:trace:turn-b", STREAM),
        *(feedback_key("turn-b"), exposed_key("gain", 1, BOB)),
        shared_key("encoder", encoding_name("who is he")),
    }
    assert await redis.xlen("ng:turns") == await redis.xlen("ng:index:{ng:turns}") == 1
    assert await erase_user(redis, "ada") == Erased()


async def test_one_turn_goes_with_its_shadow_and_its_unit_stays_for_the_others(
    redis: Redis, make_turn: Callable[..., Turn]
) -> None:
    one = make_turn(id="turn-1", user="ada", assignment=Assignment("treatment", "gain", 1, ADA))
    await write(redis, one)
    await write(redis, replace(one, id="turn-1s", shadow_of="turn-1"))
    await write(redis, replace(one, id="turn-2", question="another"))
    stay: list[Entry] = [Exposure(ADA, "treatment", 1.0), TurnOutcome("turn-2", ADA, "treatment", 2.0)]
    await observe(redis, *stay, TurnOutcome("turn-1", ADA, "treatment", 1.0))
    await observe(redis, TurnOutcome("turn-1s", ADA, "control", 1.0, shadow_of="turn-1"))
    erased = await erase_turn(redis, "turn-1")
    assert (erased.turns, erased.records, erased.outcomes, erased.exposures) == (2, 2, 2, 0)
    assert await left(redis) == stay
    last = await erase_turn(redis, "turn-2")
    assert (last.turns, last.outcomes, last.exposures) == (1, 1, 1)
    assert await left(redis) == []


async def test_a_unit_that_several_share_keeps_what_the_others_measured(
    redis: Redis, make_turn: Callable[..., Turn]
) -> None:
    """The unit is a tenant's header: two people's turns are measured under it."""
    assignment = Assignment("treatment", "gain", 1, TENANT)
    for turn_id, user in (("turn-1", "ada"), ("turn-2", "bob")):
        await write(redis, make_turn(id=turn_id, user=user, assignment=assignment))
    stay: list[Entry] = [Exposure(TENANT, "treatment", 1.0), TurnOutcome("turn-2", TENANT, "treatment", 2.0)]
    await observe(redis, *stay, TurnOutcome("turn-1", TENANT, "treatment", 1.0))
    erased = await erase_user(redis, "ada")
    assert (erased.turns, erased.outcomes, erased.exposures) == (1, 1, 0)
    assert await left(redis) == stay


async def test_a_turn_that_was_never_there_erases_nothing(redis: Redis) -> None:
    assert await erase_turn(redis, "turn-0") == Erased()
