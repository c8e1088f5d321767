"""``gravity replay``: recorded turns decoded again by a real worker."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from redis import Redis

from gateway.errors import ReplayError, TraceError
from gateway.replay.command import ReplayOptions, run_replay
from gateway.replay.comparison import TOLERANCES
from gateway.trace.steps import ChoiceSteps, wait_for_steps
from worker.protocol import StepRecord, pack_steps, trace_key

QUESTION = "Name three colours of autumn leaves."


@pytest.fixture(scope="module")
def redis(served: Any) -> Iterator[Redis]:
    with Redis.from_url(served.redis_url) as client:
        yield client


@pytest.fixture(scope="module")
def ask(served: Any, redis: Redis, wait_until: Any) -> Callable[..., str]:
    """Send one request through the gateway and return the turn's id once its record is there."""

    def send(**fields: Any) -> str:
        body = {
            "model": "SmolLM2-135M-Instruct",
            "messages": [{"role": "user", "content": QUESTION}],
            "max_tokens": 24,
            "temperature": 0.9,
        }
        answer = httpx.post(f"{served.gateway_url}/v1/chat/completions", json=body | fields, timeout=60)
        assert answer.status_code == 200, answer.text
        turn_id = answer.headers["x-gravity-turn-id"]
        wait_until(lambda: redis.exists(f"ng:turn:{turn_id}"))
        return str(turn_id)

    return send


@pytest.fixture(scope="module")
def turn(ask: Callable[..., str]) -> str:
    """A turn under a task's controls, whose seed the worker drew."""
    return ask(task="open_writing")


@pytest.fixture
def replay(served: Any) -> Callable[..., int]:
    def run(turn_id: str, **options: Any) -> int:
        urls = {"redis_url": served.redis_url, "worker_url": served.worker_url}
        return run_replay(ReplayOptions(turn_id, **(urls | options)))

    return run


def kernels_of(served: Any) -> str:
    [model] = httpx.get(f"{served.worker_url}/v1/models", timeout=10).json()["data"]
    return str(model["gravity"]["environment"]["kernels"])


def steps_of(served: Any, turn_id: str) -> tuple[ChoiceSteps, ...]:
    async def read() -> tuple[ChoiceSteps, ...]:
        from redis.asyncio import Redis as AsyncRedis

        async with AsyncRedis.from_url(served.redis_url) as client:
            return await wait_for_steps(client, turn_id)

    return asyncio.run(read())


@pytest.fixture
def copy_turn(served: Any, redis: Redis) -> Callable[..., str]:
    """A second turn with another id: the record changed by ``edit``, the steps by ``change``."""

    def make(
        turn_id: str,
        *,
        name: str,
        edit: Callable[[dict[str, Any]], None] = lambda record: None,
        change: Callable[[int, StepRecord], StepRecord] = lambda number, step: step,
        num_steps_claimed: int | None = None,
    ) -> str:
        content = redis.get(f"ng:turn:{turn_id}")
        assert isinstance(content, bytes)
        record = json.loads(content) | {"id": f"{turn_id}-{name}"}
        edit(record)
        redis.set(f"ng:turn:{record['id']}", json.dumps(record), ex=600)
        steps = [change(*numbered) for numbered in enumerate(steps_of(served, turn_id)[0].steps)]
        key = trace_key(record["id"])
        redis.delete(key)
        redis.xadd(key, pack_steps(0, steps))  # type: ignore[arg-type]
        redis.xadd(key, {"end": "stop", "choice": "0", "n": str(num_steps_claimed or len(steps))})
        return str(record["id"])

    return make


def test_a_turn_replayed_from_its_trace_is_equal(
    turn: str, replay: Callable[..., int], served: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert replay(turn, json_file=tmp_path / "replay.json") == 0
    num_steps = len(steps_of(served, turn)[0].steps)
    assert f"equal: {num_steps} steps within the tolerance" in capsys.readouterr().out
    written = json.loads((tmp_path / "replay.json").read_bytes())
    assert written["is_equal"] is True
    assert written["mode"] == "trace"
    expected = "fp32" if kernels_of(served) == "native" else written["dtype"]
    assert written["tolerance"] == dataclasses.asdict(TOLERANCES[expected])
    assert written["choices"][0]["num_steps"] == written["choices"][0]["num_replayed"] == num_steps
    assert written["choices"][0]["first_difference"] is None


def test_another_environment_is_named_and_compared_by_the_coarser_format(
    turn: str,
    replay: Callable[..., int],
    copy_turn: Callable[..., str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def edit(record: dict[str, Any]) -> None:
        record["environment"]["worker"] |= {"dtype": "bf16", "engine": "another"}

    assert replay(copy_turn(turn, name="elsewhere", edit=edit), json_file=tmp_path / "replay.json") == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "not as it was decoded first" in printed
    assert "engine another -> narrative-gravity" in printed
    written = json.loads((tmp_path / "replay.json").read_bytes())
    assert "engine another -> narrative-gravity" in written["environment_changes"]
    assert written["tolerance"] == dataclasses.asdict(TOLERANCES["bf16"])


def test_an_exact_replay_draws_the_same_tokens_from_the_seed(
    turn: str, replay: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert replay(turn, is_exact=True) == 0
    assert "tokens included" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("quantity", "name", "by"),
    [("entropy_nats", "H", 0.6), ("gravity", "G", -0.1), ("k", "k", 2_000), ("logprob", "logprob", 1.0)],
)
def test_the_first_step_that_differs_is_named(
    turn: str,
    replay: Callable[..., int],
    copy_turn: Callable[..., str],
    capsys: pytest.CaptureFixture[str],
    quantity: str,
    name: str,
    by: float,
) -> None:
    def change(number: int, step: StepRecord) -> StepRecord:
        return dataclasses.replace(step, **{quantity: getattr(step, quantity) + by}) if number >= 5 else step

    assert replay(copy_turn(turn, name=quantity, change=change)) == 1
    assert f"DIFFERS first at step 5: {name} was" in capsys.readouterr().out


def test_an_exact_replay_names_the_first_token_that_differs(
    turn: str, replay: Callable[..., int], copy_turn: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    def change(number: int, step: StepRecord) -> StepRecord:
        return dataclasses.replace(step, token_id=step.token_id + 1) if number == 3 else step

    assert replay(copy_turn(turn, name="token", change=change), is_exact=True) == 1
    assert "DIFFERS first at step 3: token was" in capsys.readouterr().out


def test_another_seed_gives_other_tokens(
    turn: str, replay: Callable[..., int], copy_turn: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    def edit(record: dict[str, Any]) -> None:
        record["upstream_body"]["seed"] = 1 + (record["outcome"]["seed"] or 0) % 1_000

    assert replay(copy_turn(turn, name="seed", edit=edit), is_exact=True) == 1
    assert "token was" in capsys.readouterr().out


def test_every_choice_is_replayed(
    ask: Callable[..., str], replay: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    turn_id = ask(n=2, seed=5, ignore_eos=True)
    assert replay(turn_id) == 0
    printed = capsys.readouterr().out
    assert "choice 0" in printed
    assert "choice 1" in printed
    assert printed.count("equal: 24 steps") == 2


def test_turns_that_were_decoded_together_stay_within_the_tolerance(
    ask: Callable[..., str], replay: Callable[..., int], served: Any
) -> None:
    questions = ["Why is the sky blue?", "Write a line about rain.", "Count to five.", "What is a leek?"]
    with ThreadPoolExecutor(4) as pool:
        turns = list(
            pool.map(
                lambda text: ask(messages=[{"role": "user", "content": text}], ignore_eos=True), questions
            )
        )
    sizes = {step.batch_size for turn_id in turns for step in steps_of(served, turn_id)[0].steps}
    assert max(sizes) >= 2
    assert [replay(turn_id) for turn_id in turns] == [0] * 4
    if kernels_of(served) == "native":  # company changes no bit, so the same tokens are drawn
        assert [replay(turn_id, is_exact=True) for turn_id in turns] == [0] * 4


def test_nothing_of_a_replay_is_written_to_redis(turn: str, replay: Callable[..., int], redis: Redis) -> None:
    before = {key: redis.xlen(key) for key in redis.scan_iter("ng:trace:*")}
    turns = redis.xlen("ng:turns")
    assert replay(turn) == 0
    assert {key: redis.xlen(key) for key in redis.scan_iter("ng:trace:*")} == before
    assert redis.xlen("ng:turns") == turns


def test_what_cannot_be_replayed_says_why(
    turn: str, replay: Callable[..., int], copy_turn: Callable[..., str], free_port: Callable[[], int]
) -> None:
    with pytest.raises(ReplayError, match="there is no turn 'nowhere'"):
        replay("nowhere")
    with pytest.raises(ReplayError, match="does not answer"):
        replay(turn, worker_url=f"http://127.0.0.1:{free_port()}")
    with pytest.raises(ReplayError, match=r"Redis at redis://127\.0\.0\.1"):
        replay(turn, redis_url=f"redis://127.0.0.1:{free_port()}/0")

    def forget(record: dict[str, Any]) -> None:
        record["text_retention"] = "hashed"
        del record["upstream_body"]["messages"]

    with pytest.raises(ReplayError, match=r"text of turn .* was not kept"):
        replay(copy_turn(turn, name="hashed", edit=forget))
    other = copy_turn(turn, name="model", edit=lambda record: record.update(model="another-model"))
    with pytest.raises(ReplayError, match="serves SmolLM2-135M-Instruct, the turn was another-model's"):
        replay(other)


def test_a_trace_that_lost_steps_is_not_compared(
    turn: str, replay: Callable[..., int], copy_turn: Callable[..., str]
) -> None:
    lost = copy_turn(turn, name="lost", num_steps_claimed=500)
    with pytest.raises(TraceError, match="of 500 steps are there"):
        replay(lost, trace_timeout_s=0.2)


def test_the_command_starts_a_worker_where_none_answers(
    turn: str, start_command: Any, served: Any, free_port: Callable[[], int]
) -> None:
    nobody = f"http://127.0.0.1:{free_port()}"
    environment = {"NG_REDIS_URL": served.redis_url, "NG_WORKERS": nobody, "NG_WORKER_THREADS": "1"}
    running = start_command(["replay", turn], environment)
    assert running.process.wait(120) == 0, running.output
    assert "steps within the tolerance" in running.output


def test_the_commands_status_is_2_where_it_cannot_run(start_command: Any, served: Any) -> None:
    running = start_command(["replay", "nowhere", "--redis", served.redis_url], {})
    assert running.process.wait(30) == 2
    assert "gravity: there is no turn 'nowhere'" in running.output


def test_trace_show_prints_the_steps(turn: str, start_command: Any, served: Any) -> None:
    running = start_command(["trace", "show", turn, "--redis", served.redis_url], {"COLUMNS": "80"})
    assert running.process.wait(30) == 0, running.output
    for step in steps_of(served, turn)[0].steps:
        assert f"#{step.token_id}" in running.output
        assert f"{step.entropy_nats:.3f}" in running.output
    assert "k  candidates kept" in running.output


def test_charts_do_not_fail_where_the_output_is_ascii(turn: str, start_command: Any, served: Any) -> None:
    ascii_only = {"COLUMNS": "80", "PYTHONIOENCODING": "ascii"}
    running = start_command(["trace", "show", turn, "--redis", served.redis_url], ascii_only)
    assert running.process.wait(30) == 0, running.output
    assert running.output.isascii()
    assert "k  candidates kept" in running.output
