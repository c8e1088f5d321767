"""``gravity trace``: what is printed, exported and followed."""

from __future__ import annotations

import asyncio
import json
import signal
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from redis.asyncio import Redis as AsyncRedis

from gateway.errors import TraceError
from gateway.flow.record import summary
from gateway.flow.retention import encoded
from gateway.flow.turn import Outcome, Turn
from gateway.trace.export import run_export
from gateway.trace.index import Written, write_arguments
from gateway.trace.listing import run_list, run_list_json
from gateway.trace.query import TurnQuery
from gateway.trace.show import run_show
from gateway.trace.tail import follow
from tests.conftest import StartCommand, StartValkey, WaitUntil
from worker.protocol import StepRecord, pack_steps, trace_key

OUTCOME = Outcome(
    finish_reasons=("stop",),
    prompt_tokens=40,
    completion_tokens=3,
    time_to_first_token_s=0.25,
    latency_s=1.5,
    mean_entropy_nats=1.25,
    mean_gravity=0.75,
    entropic_time_nats=3.5,
    net_drop_nats=0.75,
    envelope_nats=1.5,
    seed=7,
    text="an answer",
)
STEPS = [
    StepRecord(100 + number, -0.5, 1.5, 0.125, 0.875, 1.0, 0.5, 7, 1.0, 0.75, 0.25, 1.0, 2, 0, number, 1)
    for number in range(3)
]


def turn(**changes: Any) -> Turn:
    plain = Turn(
        id=f"turn-{uuid.uuid4().hex}",
        received_at=1_800_000_000.0,
        endpoint="/v1/chat/completions",
        body={},
        model="SmolLM2-135M-Instruct",
        is_streaming=True,
        wants_usage=False,
        config_sha="c0ffee" + "0" * 58,
        outcome=OUTCOME,
    )
    return replace(plain, **changes)


@pytest.fixture(scope="module")
def url(start_valkey: StartValkey) -> Iterator[str]:
    valkey = start_valkey()
    yield valkey.url
    valkey.end()


@pytest.fixture
def record(url: str) -> Iterator[Callable[[Turn], Turn]]:
    """Write a turn as gateway and worker do."""
    with Redis.from_url(url) as redis:

        def write(turn: Turn) -> Turn:
            redis.xadd(trace_key(turn.id), pack_steps(0, STEPS))
            redis.xadd(trace_key(turn.id), {"end": "stop", "choice": "0", "n": "3"})
            redis.eval(*write_arguments([Written(turn.id, encoded(turn, "full"), summary(turn))], 1_000, 600))
            return turn

        yield write
        redis.flushdb()


def test_a_list_has_a_line_for_each_turn_and_says_how_long_it_took(
    record: Callable[[Turn], Turn], url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    first = record(turn())
    second = record(
        turn(shadow_of=first.id, outcome=replace(OUTCOME, status="error", error_code="queue_full"))
    )
    assert run_list(TurnQuery(), url) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[2] for line in lines[1:3]] == [second.id, first.id]
    assert "c0ffee00" in lines[1]
    assert "treatment (shadow)" in lines[1]
    assert "error (queue_full)" in lines[1]
    for cell in ("0→0", "0.25s", "1.50s", "1.25", "3.5", "ok"):
        assert cell in lines[2].split()
    assert lines[3].startswith("2 turns in ")
    assert lines[3].endswith(" ms")


def test_the_same_list_as_json(
    record: Callable[[Turn], Turn], url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded = record(turn())
    assert run_list_json(TurnQuery(limit=1), url) == 0
    captured = capsys.readouterr()
    row = json.loads(captured.out)
    assert (row["id"], row["entropic_time_nats"], row["envelope_nats"]) == (recorded.id, 3.5, 1.5)
    assert "the limit: there may be more" in captured.err


def test_an_export_has_record_and_steps_of_every_turn(
    record: Callable[[Turn], Turn], url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    turns = [record(turn()) for _ in range(3)]
    with Redis.from_url(url) as redis:
        redis.delete(f"ng:turn:{turns[0].id}")
    file = tmp_path / "turns.jsonl"
    assert run_export(TurnQuery(limit=None), url, file) == 0
    lines = [json.loads(line) for line in file.read_bytes().splitlines()]
    assert [line["id"] for line in lines] == [turn.id for turn in reversed(turns)]
    assert lines[0]["turn"]["outcome"]["text"] == "an answer"
    assert lines[0]["choices"][0]["steps"]["token_id"] == [100, 101, 102]
    assert lines[2]["turn"] is None
    assert lines[2]["choices"][0]["num_steps"] == 3
    assert "3 turns exported" in capsys.readouterr().err


def test_a_file_that_cannot_be_written_is_named(url: str, tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="cannot be written"):
        run_export(TurnQuery(), url, tmp_path / "nowhere" / "turns.jsonl")


def test_a_turn_is_shown_with_its_figures_and_its_tokens_texts(
    record: Callable[[Turn], Turn], url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded = record(turn())

    async def texts(redis: Any, choices: Any) -> dict[int, list[str]]:
        return {0: [" once", " upon", "\n"]}

    assert run_show(recorded.id, url, texts) == 0
    printed = capsys.readouterr().out
    assert "tau 3.50 nats, net drop 0.75 nats, envelope 1.50 nats, mean H 1.25 nats" in printed
    assert " upon" in printed
    assert r"\n" in printed
    assert "#101" not in printed
    assert run_show(recorded.id, url) == 0
    assert "#101" in capsys.readouterr().out


async def test_following_gives_what_is_written_from_then_on(record: Callable[[Turn], Turn], url: str) -> None:
    record(turn())
    async with AsyncRedis.from_url(url) as redis:
        last: Any = await redis.xrevrange("ng:turns", count=1)
        following = follow(redis, last[0][0].decode())
        waiting = asyncio.ensure_future(anext(following))
        recorded = await asyncio.to_thread(record, turn())
        _, fields = await asyncio.wait_for(waiting, 10.0)
        await following.aclose()
    assert fields[b"id"].decode() == recorded.id


def test_tail_prints_turns_and_steps_until_interrupted(
    record: Callable[[Turn], Turn], url: str, start_command: StartCommand, wait_until: WaitUntil
) -> None:
    running = start_command(["trace", "tail", "--steps", "--lane", "treatment", "--redis", url], {})
    wait_until(lambda: "Ctrl-C ends it" in running.output, timeout_s=30.0)
    with Redis.from_url(url) as redis:  # once it has looked which traces are there, it blocks on the stream
        wait_until(lambda: any(b"xread" in each for each in blocked(redis)))
    recorded = record(turn())
    other = record(turn(id="turn-other", task=None, model="other"))
    wait_until(lambda: f"{recorded.id}  0:end   stop" in running.output)
    wait_until(lambda: running.output.count("c0ffee00") == 2)
    assert f"{recorded.id}  0:1     #101" in running.output
    assert other.id in running.output
    running.signal(signal.SIGINT)
    assert running.process.wait(10) == 0, running.output


def blocked(redis: Redis) -> list[bytes]:
    clients: Any = redis.client_list()
    return [str(client["cmd"]).encode() for client in clients if "b" in client["flags"]]
