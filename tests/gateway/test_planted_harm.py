"""A harmful configuration, from its publication to its end: the real worker, encoder, Valkey and commands."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import RunningProcess, StartCommand, WaitUntil
from tests.servers.gateway import CHAT, REPOSITORY, Gateway, StartGateway

TASK, CANDIDATE, EXPERIMENT = "ferries", "ferries_candidate", "ferries-candidate"
SOUND = """
task_type: ferries
core_semantics: [ferry, island, harbour]
gravity_strength: 1.2
sampling: {temperature: 0.8, max_tokens: 28}
"""
HARMFUL = SOUND.replace("1.2", "8") + (
    "gravity: {boost_weight: 2.5, decay: none, plausible: 0.0, max_bias_nats: 20}\n"
)
DOCUMENTS = ("The ferry Osprey goes to Marrow at seven.",)
QUESTIONS = (
    "Which ferry goes to Marrow?",
    "Where are tickets sold?",
    "What is on the island?",
    "Tell me more.",
)
AT_ONCE, MOST_TURNS = 8, 160


class Command:
    """``gravity`` on the test's configuration and Redis; gives status and output."""

    def __init__(self, start: StartCommand, environment: Mapping[str, str]) -> None:
        self._start = start
        self._environment = environment

    def __call__(self, *arguments: str) -> tuple[int, str]:
        running = self._start(arguments, self._environment)
        status = running.process.wait(60.0)
        return status, running.output


@pytest.fixture(scope="module")
def configs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("planted") / "configs"
    (folder / "tasks").mkdir(parents=True)
    shutil.copy(REPOSITORY / "configs" / "tasks" / "default.yaml", folder / "tasks")
    (folder / "tasks" / f"{TASK}.yaml").write_text(SOUND)
    return folder


def test_a_planted_harmful_configuration_is_found_explained_stopped_and_rolled_back(
    configs: Path,
    tmp_path: Path,
    start_gateway: StartGateway,
    start_command: StartCommand,
    worker_server: RunningProcess,
    valkey_url: str,
    wait_until: WaitUntil,
) -> None:
    settings: dict[str, Any] = {
        "config_store": "redis",
        "config_namespace": "planted-harm",
        "config_dir": configs,
        "state_dir": tmp_path,
        "guardrail_interval_s": 0.5,
    }
    gateways = tuple(start_gateway(worker_server.url, **settings) for _ in range(3))
    first = gateways[0]
    environment = {
        "NG_CONFIG_STORE": "redis",
        "NG_CONFIG_NAMESPACE": "planted-harm",
        "NG_CONFIG_DIR": str(configs),
        "NG_REDIS_URL": valkey_url,
        "NG_WORKERS": worker_server.url,
    }
    gravity = Command(start_command, environment)
    sound_sha = first.deps.config.snapshot.sha
    harmful = tmp_path / "harmful.yaml"
    harmful.write_text(HARMFUL)

    # A guard holds the jump back; on a share of the traffic it may show what it does.
    status, said = gravity("config", "publish", str(harmful), "--why", "more theme")
    assert status == 1
    assert "tasks.ferries.gravity_strength" in said
    assert "--share" in said
    assert first.deps.config.snapshot.sha == sound_sha
    status, said = gravity("config", "publish", str(harmful), "--why", "more theme", "--share", "0.5")
    assert status == 0, said
    wait_until(lambda: all(CANDIDATE in each.deps.config.snapshot.tasks for each in gateways))

    turns = asyncio.run(_traffic(gateways))
    wait_until(lambda: EXPERIMENT not in _active(first), timeout_s=20.0)

    # Found and stopped: the candidate is gone, everything else is as it was.
    head = first.deps.centre.head()
    assert head.documents.experiments[EXPERIMENT]["is_active"] is False
    assert CANDIDATE not in head.documents.tasks
    assert head.documents.tasks[TASK]["gravity_strength"] == 1.2
    change = first.deps.centre.history(1)[0]
    assert (change.kind, change.who) == ("guardrail", "guardrail")
    assert "treatment breaks a guardrail" in change.why
    assert [each.kind for each in first.deps.centre.history()] == ["guardrail", "publish", "first"]
    wait_until(lambda: {each.deps.config.snapshot.sha for each in gateways} == {head.sha})
    status, said = gravity("config", "history")
    assert status == 0
    assert "guardrail" in said

    # Reported on as an analyst would.
    status, said = gravity("experiment", "report", EXPERIMENT)
    assert status == 0, said
    assert "treatment breaks a guardrail" in said

    # Explained, with what to change.
    harmed = [turn["turn_id"] for turn in turns if turn["task"] == CANDIDATE]
    sound = [turn["turn_id"] for turn in turns if turn["task"] == TASK]
    assert len(harmed) >= 20
    assert len(sound) >= 20
    status, said = gravity("diagnose", "--task", CANDIDATE)
    assert "gravity_strength" in said, said
    assert "8 ->" in said, said

    # And nobody is served by it any more.
    answer = _ask(first, "u1")
    assert answer["gravity"]["task"] == TASK
    assert answer["gravity"]["config_sha"] == head.sha


async def _traffic(gateways: Sequence[Gateway]) -> list[Mapping[str, Any]]:
    """Send turns of ever new users to all gateways until the guardrail has acted. Every one is answered."""
    turns: list[Mapping[str, Any]] = []
    async with httpx.AsyncClient(timeout=120.0) as client:
        for first in range(0, MOST_TURNS, AT_ONCE):
            asked = (
                client.post(gateways[number % len(gateways)].url + CHAT, json=_body(f"user-{number}", number))
                for number in range(first, first + AT_ONCE)
            )
            for answer in await asyncio.gather(*asked):
                assert answer.status_code == 200, answer.text
                turns.append(answer.json()["gravity"])
            if len(turns) >= 40 and EXPERIMENT not in _active(gateways[0]):
                return turns
    return turns


def _active(gateway: Gateway) -> set[str]:
    return {each.id for each in gateway.deps.config.snapshot.experiments if each.is_active}


def _ask(gateway: Gateway, user: str) -> dict[str, Any]:
    answer = httpx.post(gateway.url + CHAT, json=_body(user, 0), timeout=120.0)
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


def _body(user: str, number: int) -> dict[str, Any]:
    return {
        "model": "SmolLM2-135M-Instruct",
        "task": TASK,
        "user": user,
        "seed": number,
        "messages": [{"role": "user", "content": QUESTIONS[number % len(QUESTIONS)]}],
        "documents": list(DOCUMENTS),
    }
