"""``gravity replay --config``: recorded turns under another configuration, by a real worker."""

from __future__ import annotations

import itertools
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from redis import Redis

from gateway.errors import ReplayError
from gateway.replay.config_command import ConfigReplayOptions, run_batch, run_config_replay
from gateway.trace.query import TurnQuery
from tests.conftest import RunningProcess
from tests.passages import QUESTION, found
from tests.servers.gateway import REPOSITORY, Gateway, StartGateway

TASK = "open_writing"
MAX_TOKENS = 8
SEED = 11
MODEL = "SmolLM2-135M-Instruct"


@dataclass(frozen=True, slots=True)
class Replayed:
    status: int
    printed: str
    written: dict[str, Any]


@pytest.fixture(scope="module")
def user() -> str:
    """Whose turns a batch is over."""
    return "replay-config"


@pytest.fixture(scope="module")
def ask(real_gateway: Gateway, valkey_url: str, wait_until: Any) -> Callable[..., str]:
    """Send a turn of the task and return its id once its record is there."""

    def send(question: str = QUESTION, **body: Any) -> str:
        request = {
            **{"model": MODEL, "task": TASK, "messages": [{"role": "user", "content": question}]},
            **{"documents": found(), "max_tokens": MAX_TOKENS, "seed": SEED},
        }
        answer = httpx.post(real_gateway.url + "/v1/chat/completions", json=request | body, timeout=60.0)
        assert answer.status_code == 200, answer.text
        turn_id = answer.headers["x-gravity-turn-id"]
        with Redis.from_url(valkey_url) as redis:
            wait_until(lambda: redis.exists(f"ng:turn:{turn_id}"))
        return str(turn_id)

    return send


@pytest.fixture(scope="module")
def turn(ask: Callable[..., str]) -> str:
    return ask()


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """The product's own documents in a folder, with replacements in the task's."""

    def make(**replacements: str) -> Path:
        folder = tmp_path_factory.mktemp("config") / "configs"
        shutil.copytree(REPOSITORY / "configs", folder)
        file = folder / "tasks" / f"{TASK}.yaml"
        text = file.read_text()
        for field, value in replacements.items():
            text, number = re.subn(rf"^( *){field}: .*$", rf"\g<1>{field}: {value}", text, flags=re.MULTILINE)
            assert number == 1
        file.write_text(text)
        return folder

    return make


@pytest.fixture
def replay(
    worker_server: RunningProcess, valkey_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Replayed]:
    """Replay a turn, or a query's turns, under a configuration."""

    def run(what: str | TurnQuery, reference: str | Path) -> Replayed:
        file = tmp_path / "replay.json"
        options = ConfigReplayOptions(str(reference), valkey_url, worker_server.url, file)
        status = run_batch(what, options) if isinstance(what, TurnQuery) else run_config_replay(what, options)
        return Replayed(status, capsys.readouterr().out, json.loads(file.read_bytes()))

    return run


def test_a_configuration_that_says_the_same_changes_nothing(
    turn: str, replay: Callable[..., Replayed], config: Callable[..., Path]
) -> None:
    result = replay(turn, config(description="Said in other words."))
    assert result.status == 0
    assert result.written["is_request_same"] is True
    assert result.written["sha_then"] != result.written["sha_now"]
    assert result.written["choices"] == []
    assert result.written["prompt_tokens_then"] == result.written["prompt_tokens_now"] > 0
    assert "UNCHANGED" in result.printed


def test_documents_are_those_that_pruning_keeps_under_that_configuration(
    turn: str,
    replay: Callable[..., Replayed],
    config: Callable[..., Path],
    start_gateway: StartGateway,
    worker_server: RunningProcess,
) -> None:
    folder = config(keep="0.0")
    gateway = start_gateway(worker_server.url, config_dir=folder)
    asked = {"query": QUESTION, "documents": found(), "task": TASK, "model": MODEL}
    pruned = httpx.post(gateway.url + "/v1/prune", json=asked, timeout=60.0)
    assert pruned.status_code == 200, pruned.text
    kept = [verdict["id"] for verdict in pruned.json()["verdicts"] if verdict["kept"]]
    result = replay(turn, folder)
    assert result.written["kept_now"] == kept
    assert set(result.written["kept_then"]) < set(kept)
    message = {"role": "user", "content": QUESTION}
    chat = {"model": MODEL, "task": TASK, "messages": [message], "documents": found(), "max_tokens": 1}
    served = httpx.post(gateway.url + "/v1/chat/completions", json=chat, timeout=60.0).json()
    assert result.written["prompt_tokens_now"] == served["usage"]["prompt_tokens"]
    assert result.written["prompt_tokens_now"] > result.written["prompt_tokens_then"]
    assert result.written["changes_documents"] is True
    assert result.written["is_prompt_same"] is False
    assert result.written["setting_changes"] == []


def test_stronger_gravity_parts_where_two_calls_of_the_worker_do(
    turn: str,
    replay: Callable[..., Replayed],
    config: Callable[..., Path],
    worker_server: RunningProcess,
    valkey_url: str,
) -> None:
    with Redis.from_url(valkey_url) as redis:
        content = redis.get(f"ng:turn:{turn}")
        assert isinstance(content, bytes)
    sent = json.loads(content)["upstream_body"]
    controls = json.loads(sent["vllm_xargs"]["gravity"])
    controls.pop("trace")

    def tokens(strength: float) -> list[str]:
        stronger = {**controls, "gravity": {**controls["gravity"], "strength": strength}}
        body = {**sent, "stream": False, "stream_options": None, "logprobs": True}
        body["vllm_xargs"] = {"gravity": json.dumps(stronger)}
        answer = httpx.post(worker_server.url + "/v1/chat/completions", json=body, timeout=60.0).json()
        return [entry["token"] for entry in answer["choices"][0]["logprobs"]["content"]]

    then, now = tokens(controls["gravity"]["strength"]), tokens(8.0)
    step = next(number for number, pair in enumerate(zip(then, now, strict=False)) if pair[0] != pair[1])
    result = replay(turn, config(gravity_strength="8"))
    assert result.status == 1
    [change] = result.written["setting_changes"]
    assert (change["name"], change["then"], change["now"]) == ("gravity.strength", 0.6, 8.0)
    [choice] = result.written["choices"]
    assert choice["divergence"] == step
    assert choice["base"]["is_recorded"] is True
    assert choice["base"]["side"]["pieces"][step] == then[step]
    assert choice["now"]["pieces"][step] == now[step]
    assert f"PART at step {step}: {then[step]!r} then, {now[step]!r} now" in result.printed
    entropies = choice["now"]["entropies_nats"]
    tau = sum(max(0.0, before - after) for before, after in itertools.pairwise(entropies))
    assert choice["means_now"]["entropic_time_nats"] == pytest.approx(tau)


def test_a_batch_counts_what_changes_and_what_cannot_be_replayed(
    ask: Callable[..., str],
    user: str,
    replay: Callable[..., Replayed],
    config: Callable[..., Path],
    valkey_url: str,
) -> None:
    steered = ask(user=user)
    unsteered = ask(user=user, gravity={"gravity_strength": 0})
    forgotten = ask(user=user)
    with Redis.from_url(valkey_url) as redis:
        redis.delete(f"ng:trace:{forgotten}")
    everything = TurnQuery(user=user)
    result = replay(everything, config(gravity_strength="8"))
    assert result.status == 1
    assert result.written["skipped"] == {"its steps are gone, or not all there": 1}
    # The request's own strength, 0, wins under either configuration.
    assert (result.written["answers"]["num_hits"], result.written["answers"]["num_trials"]) == (1, 2)
    assert [each["turn_id"] for each in result.written["most_changed"]] == [steered]
    assert unsteered not in result.printed
    assert (result.written["num_documents_changed"], result.written["num_settings_changed"]) == (0, 1)
    same = replay(everything, "head")
    assert same.status == 0
    assert same.written["answers"]["num_hits"] == same.written["num_decoded"] == 0
    assert same.written["answers"]["num_trials"] == 3


def test_what_cannot_be_replayed_says_why(turn: str, replay: Callable[..., Replayed], tmp_path: Path) -> None:
    with pytest.raises(ReplayError, match="no such turn"):
        replay("nowhere", "head")
    with pytest.raises(ReplayError, match="'0000000' cannot be used"):
        replay(turn, "0000000")
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "default.yaml").write_text("task_type: default\ngravity_stength: 1\n")
    with pytest.raises(ReplayError, match=r"default\.yaml"):
        replay(turn, tmp_path)
    with pytest.raises(ReplayError, match="no recorded turn"):
        replay(TurnQuery(task="nowhere"), "head")
