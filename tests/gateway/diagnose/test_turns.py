"""``gravity diagnose`` on real turns: each wrong in one way, and one that is right."""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from redis import Redis
from typer.testing import CliRunner

from gateway.cli import app
from gateway.diagnose.command import DiagnoseOptions, run_diagnose, run_diagnose_task
from gateway.errors import TraceError
from gateway.trace.query import TurnQuery
from tests.servers.gateway import CHAT, COMPLETIONS, Gateway, StartGateway

if TYPE_CHECKING:
    from tests.conftest import RunningProcess, WaitUntil

MODEL = "SmolLM2-135M-Instruct"
DOCUMENTS = [
    {
        "id": "lark",
        "title": "Marrow Lark",
        "text": "The Marrow Lark is powered by hydrogen fuel cells and sails to Skerrin every night.",
    },
    {
        "id": "bread",
        "title": "Sourdough",
        "text": "A sourdough rises overnight in a cool kitchen and is baked hot, with steam.",
    },
]
KEYWORDS = ["sea", "ship", "night", "water", "light", "wind", "storm", "harbour", "boat", "sky"]
STRONG = {
    "gravity_strength": 8,
    "core_semantics": KEYWORDS,
    "gravity": {"boost_weight": 0.4, "plausible": 0.0, "repetition_brake": 1.0},
}


def chat(text: str, **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], **fields}


REQUESTS: Mapping[str, Mapping[str, Any]] = {
    "healthy": chat("How is the Marrow Lark powered?", documents=DOCUMENTS, max_tokens=64),
    "strong": chat("Describe a place.", gravity=STRONG, seed=2, max_tokens=24, ignore_eos=True),
    "narrow": chat(
        "Describe a place.",
        gravity={"adaptive": {"k_min": 2, "k_max": 2}},
        temperature=1.5,
        max_tokens=12,
        ignore_eos=True,
    ),
    "loop": {
        "prompt": "The cat sat. The cat sat. The cat sat. The cat sat.",
        "temperature": 0,
        "max_tokens": 24,
        "ignore_eos": True,
    },
}


@pytest.fixture(scope="module")
def turns(real_gateway: Gateway, valkey_url: str, wait_until: WaitUntil) -> Mapping[str, str]:
    """The turns' ids, once they are recorded."""
    with ThreadPoolExecutor(len(REQUESTS)) as pool:
        ids = dict(
            zip(REQUESTS, pool.map(lambda name: ask(real_gateway, REQUESTS[name]), REQUESTS), strict=True)
        )
    with Redis.from_url(valkey_url) as redis:
        wait_until(lambda: all(redis.exists(f"ng:turn:{turn_id}") for turn_id in ids.values()))
    return ids


def ask(gateway: Gateway, fields: Mapping[str, Any]) -> str:
    body = {"model": MODEL, "task": "rag_qa", "seed": 1, **fields}
    path = CHAT if "messages" in fields else COMPLETIONS
    headers = {"X-Gravity-Lane": "treatment"}
    answer = httpx.post(gateway.url + path, json=body, headers=headers, timeout=120.0)
    assert answer.status_code == 200, answer.text
    return str(answer.headers["x-gravity-turn-id"])


class Diagnosed:
    """Runs the command on a turn and keeps its JSON."""

    def __init__(self, valkey_url: str, worker_url: str, file: Path) -> None:
        self.options = DiagnoseOptions(valkey_url, worker_url, file)
        self._file = file

    def __call__(self, turn_id: str) -> tuple[int, dict[str, Any]]:
        status = run_diagnose(turn_id, self.options)
        return status, json.loads(self._file.read_bytes())


@pytest.fixture
def diagnosed(valkey_url: str, worker_server: RunningProcess, tmp_path: Path) -> Diagnosed:
    return Diagnosed(valkey_url, worker_server.url, tmp_path / "diagnosis.json")


def names(diagnosis: Mapping[str, Any]) -> list[str]:
    return [finding["name"] for finding in diagnosis["findings"]]


def test_a_healthy_turn_has_nothing_wrong_with_it(
    turns: Mapping[str, str], diagnosed: Diagnosed, capsys: pytest.CaptureFixture[str]
) -> None:
    status, diagnosis = diagnosed(turns["healthy"])
    assert (status, diagnosis["findings"]) == (0, [])
    assert "nothing found" in capsys.readouterr().out


def test_gravity_of_strength_8_is_named_with_the_tokens_that_it_overruled(
    turns: Mapping[str, str], diagnosed: Diagnosed, capsys: pytest.CaptureFixture[str]
) -> None:
    status, diagnosis = diagnosed(turns["strong"])
    assert status == 1
    assert names(diagnosis)[0] == "over-strong gravity"
    finding = diagnosis["findings"][0]
    assert finding["change"] == {"path": "request.gravity.gravity_strength", "before": 8.0, "after": 0.8}
    shown = [step for step in finding["steps"] if "top" in step]
    assert 1 <= len(shown) <= 3
    for step in shown:
        assert step["bias_nats"] == 3.0  # 8 x 0.4 is above the bound
        assert len(step["top"]) == 5
        logprobs = [token["logprob"] for token in step["top"]]
        assert logprobs == sorted(logprobs, reverse=True)
        assert step["piece"].strip().lower() in KEYWORDS
    assert "request.gravity.gravity_strength: 8 -> 0.8" in capsys.readouterr().out


def test_two_candidates_where_the_model_is_unsure_are_broken_text(
    turns: Mapping[str, str], diagnosed: Diagnosed
) -> None:
    _, diagnosis = diagnosed(turns["narrow"])
    assert names(diagnosis)[:2] == ["broken text", "temperature too high"]
    assert "calibrated elsewhere" in names(diagnosis)
    broken = diagnosis["findings"][0]
    assert broken["change"]["path"] == "request.gravity.adaptive.k_max"
    assert broken["change"]["before"] == 2
    assert broken["change"]["after"] >= 8
    assert all(step["k"] == 2 for step in broken["steps"])


def test_a_greedy_answer_that_repeats_itself_is_a_loop(
    turns: Mapping[str, str], diagnosed: Diagnosed
) -> None:
    _, diagnosis = diagnosed(turns["loop"])
    assert names(diagnosis) == ["loop", "cut off"]
    assert diagnosis["findings"][0]["change"] == {"path": "request.temperature", "before": 0.0, "after": 0.4}


def test_a_tasks_turns_are_counted_together(
    turns: Mapping[str, str],
    diagnosed: Diagnosed,
    valkey_url: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # Others' turns of this task, from before, are not counted.
    query = TurnQuery(task="rag_qa", since=first_received(valkey_url, turns))
    assert run_diagnose_task(query, diagnosed.options) == 1
    counted = json.loads((tmp_path / "diagnosis.json").read_bytes())
    by_name = {finding["name"]: finding for finding in counted["findings"]}
    assert (counted["num_turns"], counted["num_sound"], counted["num_unread"]) == (4, 1, 0)
    for name, turn in (("loop", "loop"), ("broken text", "narrow"), ("over-strong gravity", "strong")):
        assert (by_name[name]["num_turns"], by_name[name]["share"]) == (1, 0.25)
        assert by_name[name]["worst_turns"] == [turns[turn]]
    assert by_name["cut off"]["num_turns"] == 3
    assert "over-strong gravity: 1 of 4 turns (25%)" in capsys.readouterr().out


def first_received(valkey_url: str, turns: Mapping[str, str]) -> float:
    with Redis.from_url(valkey_url) as redis:
        records: list[Any] = [redis.get(f"ng:turn:{turn_id}") for turn_id in turns.values()]
    return min(float(json.loads(record)["received_at"]) for record in records)


def test_without_a_worker_the_findings_are_there_without_the_likeliest_tokens(
    turns: Mapping[str, str], valkey_url: str, free_port: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    nobody = f"http://127.0.0.1:{free_port()}"
    assert run_diagnose(turns["loop"], DiagnoseOptions(valkey_url, nobody)) == 1
    printed = capsys.readouterr().out
    assert "sampling: loop" in printed
    assert "likeliest tokens are not shown" in printed


def test_a_turn_that_is_not_there_is_said_so(diagnosed: Diagnosed) -> None:
    with pytest.raises(TraceError, match="there is no turn 'nowhere'"):
        diagnosed("nowhere")
    with pytest.raises(TraceError, match="no turn matches"):
        run_diagnose_task(TurnQuery(task="no_such_task"), diagnosed.options)


def test_a_worker_that_computes_otherwise_is_named(
    turns: Mapping[str, str], diagnosed: Diagnosed, valkey_url: str
) -> None:
    with Redis.from_url(valkey_url) as redis:
        content = redis.get(f"ng:turn:{turns['narrow']}")
        assert isinstance(content, bytes)
        record = json.loads(content)
        record["id"] = f"{turns['narrow']}-elsewhere"
        record["environment"]["worker"] |= {"dtype": "bf16", "weights": "blake2b:other"}
        redis.set(f"ng:turn:{record['id']}", json.dumps(record), ex=600)
        redis.copy(f"ng:trace:{turns['narrow']}", f"ng:trace:{record['id']}")
    _, diagnosis = diagnosed(record["id"])
    [changed] = [each for each in diagnosis["findings"] if each["name"] == "environment changed"]
    assert "dtype bf16 then, fp32 now" in changed["sentence"]
    assert "weights blake2b:other then" in changed["sentence"]


def test_a_turn_whose_text_is_not_kept_is_diagnosed_by_its_numbers(
    worker_server: RunningProcess,
    start_gateway: StartGateway,
    diagnosed: Diagnosed,
    valkey_url: str,
    wait_until: WaitUntil,
) -> None:
    gateway = start_gateway(worker_server.url, text_retention="hashed")
    turn_id = ask(gateway, REQUESTS["narrow"])
    with Redis.from_url(valkey_url) as redis:
        wait_until(lambda: redis.exists(f"ng:turn:{turn_id}"))
    status, diagnosis = diagnosed(turn_id)
    assert status == 1
    assert names(diagnosis)[0] == "broken text"
    assert "tokens were not kept" in diagnosis["not_shown"]


def test_the_command_takes_a_turn_or_a_task(
    turns: Mapping[str, str], valkey_url: str, worker_server: RunningProcess
) -> None:
    urls = ["--redis", valkey_url, "--worker", worker_server.url]
    healthy = CliRunner().invoke(app, ["diagnose", turns["healthy"], *urls])
    assert (healthy.exit_code, "nothing found" in healthy.output) == (0, True)
    task = CliRunner().invoke(app, ["diagnose", "--task", "rag_qa", "--since", "1h", "--limit", "50", *urls])
    assert (task.exit_code, "sampling: loop: " in task.output) == (1, True)
    for wrong in (["diagnose"], ["diagnose", turns["healthy"], "--task", "rag_qa"]):
        assert isinstance(CliRunner().invoke(app, wrong).exception, TraceError)
