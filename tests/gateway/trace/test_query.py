"""Recorded turns, found among 10,000 in a real Valkey."""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any

import pytest
import pytest_asyncio
from redis import Redis as BlockingRedis
from redis.asyncio import Redis

from gateway.context.report import PruneReport
from gateway.errors import TraceError
from gateway.flow.record import summary
from gateway.flow.turn import Assignment, Outcome, Turn
from gateway.store.document import TaskDocument
from gateway.trace.index import Written, write_arguments
from gateway.trace.query import TurnQuery, find_turns
from tests.conftest import StartValkey

NUM_TURNS = 10_000
BEGIN = 1_700_000_000.0
TASKS = [TaskDocument(task_type=name) for name in ("default", "open_writing", "rag_answer")]
WIDE_BOUND_S = 1.0
"""The answer takes 0.02 to 0.03 s of a quiet processor."""


def make_turn(number: int) -> Turn:
    """A turn with all that a real one's entry has; few have failed, fewer are of another model."""
    draw = random.Random(number)
    outcome = Outcome(
        status="error" if number % 400 == 7 else "ok",
        finish_reasons=("stop",),
        prompt_tokens=draw.randrange(1_000),
        completion_tokens=draw.randrange(200),
        time_to_first_token_s=draw.random(),
        latency_s=draw.random() * 10,
        mean_entropy_nats=draw.random() * 3,
        mean_gravity=draw.random(),
        entropic_time_nats=draw.random() * 50,
        net_drop_nats=draw.random(),
        envelope_nats=draw.random(),
        seed=draw.getrandbits(63),
    )
    return Turn(
        id=f"turn-{draw.getrandbits(128):032x}",
        received_at=BEGIN + number,
        endpoint="/v1/chat/completions",
        body={},
        model="other" if number % 2_000 == 3 else "SmolLM2-135M-Instruct",
        is_streaming=True,
        wants_usage=False,
        user=f"user-{number % 50}",
        assignment=Assignment(
            "control" if number % 2 else "treatment", "keep-safe", 3, f"{number % 50:016x}"
        ),
        task=TASKS[number % 3],
        config_sha=f"{number // 3_000:x}" + "ab" * 31 + "c",
        worker="http://127.0.0.1:8081",
        expected_s=draw.random(),
        prune_report=PruneReport(tokens_before=3_000, tokens_after=500),
        outcome=outcome,
    )


TURNS = [make_turn(number) for number in range(NUM_TURNS)]


@pytest.fixture(scope="module")
def url(start_valkey: StartValkey) -> Iterator[str]:
    """A Valkey with the 10,000 turns, written as the recorder does."""
    valkey = start_valkey()
    with BlockingRedis.from_url(valkey.url) as redis:
        write(redis, TURNS)
    yield valkey.url
    valkey.end()


def written(turn: Turn) -> Written:
    return Written(turn.id, b"{}", summary(turn))


def write(redis: BlockingRedis, turns: Sequence[Turn]) -> None:
    for start in range(0, len(turns), 500):
        with redis.pipeline(transaction=False) as pipe:
            for turn in turns[start : start + 500]:
                pipe.eval(*write_arguments([written(turn)], 100_000, 600))
            pipe.execute()


@pytest_asyncio.fixture
async def redis(url: str) -> AsyncIterator[Redis]:
    async with Redis.from_url(url) as client:
        yield client


@pytest_asyncio.fixture
async def empty(start_valkey: StartValkey) -> AsyncIterator[Redis]:
    """A Valkey of its own, without turns."""
    valkey = start_valkey()
    async with Redis.from_url(valkey.url) as client:
        yield client
    valkey.end()


def by_hand(wanted: Callable[[Turn], bool], limit: int | None = 50) -> list[str]:
    return [turn.id for turn in reversed(TURNS) if wanted(turn)][:limit]


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        (TurnQuery(), lambda turn: True),
        (TurnQuery(status="error"), lambda turn: turn.outcome.status == "error"),
        (TurnQuery(model="other"), lambda turn: turn.model == "other"),
        (
            TurnQuery(task="rag_answer", lane="control"),
            lambda t: t.task.task_type == "rag_answer" and t.assignment.lane == "control",
        ),
        (TurnQuery(config_sha="1ab"), lambda turn: turn.config_sha.startswith("1ab")),
        (TurnQuery(user="user-7", experiment="keep-safe"), lambda turn: turn.user == "user-7"),
        (
            TurnQuery(since=BEGIN + 4_990, until=BEGIN + 5_010),
            lambda t: BEGIN + 4_990 <= t.received_at <= BEGIN + 5_010,
        ),
        (TurnQuery(task="nowhere"), lambda turn: False),
        (TurnQuery(experiment="another"), lambda turn: False),
    ],
)
async def test_a_query_finds_what_a_filter_by_hand_does(redis: Redis, query: TurnQuery, wanted: Any) -> None:
    started_s = time.thread_time()
    rows = await find_turns(redis, query)
    taken_s = time.thread_time() - started_s
    assert [row.id for row in rows] == by_hand(wanted)
    assert taken_s < WIDE_BOUND_S


async def test_without_a_limit_all_are_found(redis: Redis) -> None:
    rows = await find_turns(redis, TurnQuery(lane="control", limit=None))
    assert [row.id for row in rows] == by_hand(lambda turn: turn.assignment.lane == "control", None)


async def test_a_row_has_what_the_turn_had(redis: Redis) -> None:
    [row] = await find_turns(redis, TurnQuery(limit=1))
    turn = TURNS[-1]
    assert (row.seed, row.received_at, row.worker) == (turn.outcome.seed, turn.received_at, turn.worker)
    assert (row.net_drop_nats, row.envelope_nats) == (turn.outcome.net_drop_nats, turn.outcome.envelope_nats)
    assert (row.experiment, row.experiment_version, row.unit) == ("keep-safe", 3, f"{9_999 % 50:016x}")
    assert (row.finish, row.shadow_of, row.error_code) == ("stop", "", "")
    assert row.user.startswith("blake2b:")
    assert "user-" not in row.user


async def test_turns_from_before_the_index_are_found_too(empty: Redis, url: str) -> None:
    for turn in TURNS[:30]:
        await empty.xadd("ng:turns", summary(turn))
    for turn in TURNS[30:40]:
        await empty.eval(*write_arguments([written(turn)], 1_000, 600))
    every = await find_turns(empty, TurnQuery())
    assert [row.id for row in every] == [turn.id for turn in reversed(TURNS[:40])]
    failed = await find_turns(empty, TurnQuery(status="error"))
    assert [row.id for row in failed] == [TURNS[7].id]


async def test_an_index_that_is_ahead_of_its_stream_is_begun_again(empty: Redis) -> None:
    await empty.xadd("ng:index:{ng:turns}", {"line": "[]"}, id="99999999999999-0")
    await empty.eval(*write_arguments([written(TURNS[0])], 1_000, 600))
    assert [row.id for row in await find_turns(empty, TurnQuery())] == [TURNS[0].id]


async def test_a_clock_behind_the_gateways_hides_no_turn(empty: Redis) -> None:
    """Redis wrote the turn, by its clock, two minutes before the gateway received it."""
    fields = summary(TURNS[0])
    await empty.xadd("ng:turns", fields, id=f"{int((BEGIN - 120) * 1e3)}-0")
    assert len(await find_turns(empty, TurnQuery(since=BEGIN - 1))) == 1
    assert len(await find_turns(empty, TurnQuery(since=BEGIN + 1))) == 0


async def test_a_damaged_entry_is_named(empty: Redis) -> None:
    await empty.xadd("ng:turns", {"id": "turn-1", "bucket": "many"}, id="5-1")
    with pytest.raises(TraceError, match="5-1"):
        await find_turns(empty, TurnQuery())


async def test_a_batch_is_written_in_the_order_in_which_it_came(empty: Redis) -> None:
    turns = TURNS[100:110]
    await empty.eval(*write_arguments([written(turn) for turn in turns], 1_000, 600))
    ids = [turn.id for turn in turns]
    entries: Any = await empty.xrange("ng:turns")
    lines: Any = await empty.xrange("ng:index:{ng:turns}")
    assert [fields[b"id"].decode() for _, fields in entries] == ids
    assert [entry for entry, _ in entries] == [line for line, _ in lines]
    for name in ids:
        assert await empty.get(f"ng:turn:{name}") == b"{}"
        assert 590 < await empty.ttl(f"ng:turn:{name}") <= 600
