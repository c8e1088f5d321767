"""A guardrail that breaks: planted outcomes, real analysis, real gateways, both kinds of store."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
import yaml
from redis import Redis

from gateway.outcomes.entry import Exposure, TurnOutcome, encode_entry, outcomes_key
from gateway.outcomes.guardrail import lock_key, metric_label
from gateway.settings import GatewaySettings
from gateway.store.centre import Note
from gateway.store.documents import Documents
from tests.servers.gateway import Gateway, StartGateway
from tests.servers.upstream import Upstream

WaitUntil = Callable[..., Any]
NUM_UNITS = 80
"""In each arm."""
INTERVAL_S = 0.1


class Planted:
    """An experiment whose treatment repeats itself, and the configuration before it."""

    def __init__(self, folder: Path, redis: Redis, action: str) -> None:
        self.id = f"harm-{uuid4().hex[:8]}"
        self.folder = folder
        self._redis = redis
        self._action = action
        (folder / "tasks").mkdir(parents=True)
        for name in ("default", "rag_qa"):
            (folder / "tasks" / f"{name}.yaml").write_text(yaml.safe_dump(task(name)))

    @property
    def document(self) -> Mapping[str, Any]:
        guardrail = {"metric": "rep_4", "better": "lower", "margin": 0.05, "action": self._action}
        arms = [{"name": "treatment", "start": 0.0, "task": "harmful"}, {"name": "control", "start": 0.5}]
        return {
            "id": self.id,
            "tasks": ["rag_qa"],
            "enrol_seed": "enrol",
            "arm_seed": "arm",
            "arms": arms,
            "primary_metric": "rep_4",
            "guardrails": [guardrail],
        }

    def publish(self, gateway: Gateway) -> None:
        """Begin the experiment, with an arm that needs a new task, and change rag_qa too."""
        now = gateway.deps.centre.head().documents
        tasks = {**now.tasks, "harmful": task("harmful", 8.0), "rag_qa": task("rag_qa", 1.0)}
        experiments = {**now.experiments, self.id: self.document}
        gateway.deps.centre.publish(
            Documents(tasks, experiments), Note("ada", "a test wants it", is_forced=True)
        )

    def plant(self, *, num_lost: int = 0) -> None:
        """Write what both arms did: half of the treatment's 4-grams are repetitions, a tenth of control's.

        ``num_lost`` exposures of the control never came.
        """
        draw = random.Random(7)
        with self._redis.pipeline(transaction=False) as pipe:
            for number in range(2 * NUM_UNITS):
                arm, mean = ("treatment", 0.5) if number % 2 else ("control", 0.1)
                if arm == "control" and number < 2 * num_lost:
                    continue
                unit = f"unit-{number}"
                values = {"rep_4": mean + draw.uniform(-0.1, 0.1), "error": 0.0}
                for entry in (
                    Exposure(unit, arm, 1.0 + number),
                    TurnOutcome(f"turn-{number}", unit, arm, 2.0 + number, values),
                ):
                    pipe.xadd(outcomes_key(self.id, 1), encode_entry(entry))  # type: ignore[arg-type]
            pipe.execute()

    def state(self, gateway: Gateway) -> Any:
        """The experiment as a gateway serves it."""
        found = [each for each in gateway.deps.config.snapshot.experiments if each.id == self.id]
        return found[0] if found else None

    def has_ended(self, gateway: Gateway) -> bool:
        return self.state(gateway) is not None and not self.state(gateway).is_active


def task(name: str, strength: float = 0.0) -> dict[str, Any]:
    return {"task_type": name, "gravity_strength": strength}


@pytest.fixture
def redis(valkey_url: str) -> Iterator[Redis]:
    with Redis.from_url(valkey_url) as client:
        yield client


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, Any]:
    return {
        "config_dir": tmp_path / "configs",
        "config_namespace": f"guardrail-{uuid4().hex[:8]}",
        "state_dir": tmp_path / "state",
        "config_poll_s": 0.2,
        "guardrail_interval_s": INTERVAL_S,
    }


def counted(gateway: Gateway, name: str) -> float:
    lines = httpx.get(gateway.url + "/metrics").text.splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


@pytest.mark.parametrize("store", ["files", "redis"])
def test_of_two_gateways_one_ends_the_experiment_once_and_both_follow(
    upstream: Upstream,
    start_gateway: StartGateway,
    settings: dict[str, Any],
    redis: Redis,
    wait_until: WaitUntil,
    store: str,
) -> None:
    planted = Planted(settings["config_dir"], redis, "roll_back")
    gateways = [start_gateway(upstream.url, config_store=store, **settings) for _ in range(2)]
    planted.publish(gateways[0])
    wait_until(lambda: all(planted.state(each) for each in gateways))
    planted.plant()
    wait_until(lambda: all(planted.has_ended(each) for each in gateways))
    for gateway in gateways:
        tasks = gateway.deps.config.snapshot.tasks
        assert tasks.keys() == {"default", "rag_qa"}
        assert tasks["rag_qa"].gravity_strength == 0.0
    history = gateways[1].deps.centre.history()
    made = [change for change in history if change.kind == "guardrail"]
    assert len(made) == 1
    assert made[0].why.startswith(f"{planted.id}, version 1: treatment breaks a guardrail: ")
    assert "harmful, rag_qa are again what they were" in made[0].why
    done = 'gravity_guardrail_actions_total{action="roll_back",result="done"}'
    broken = 'gravity_guardrail_broken_total{action="roll_back",metric="rep_4"}'
    assert sum(counted(each, done) for each in gateways) == 1
    assert sum(counted(each, broken) for each in gateways) >= 1


def test_a_report_is_counted_once_and_ends_nothing(
    upstream: Upstream,
    start_gateway: StartGateway,
    settings: dict[str, Any],
    redis: Redis,
    wait_until: WaitUntil,
) -> None:
    planted = Planted(settings["config_dir"], redis, "report")
    gateway = start_gateway(upstream.url, **settings)
    planted.publish(gateway)
    planted.plant()
    broken = 'gravity_guardrail_broken_total{action="report",metric="rep_4"}'
    wait_until(lambda: counted(gateway, broken) == 1)
    looks = int(redis.info("commandstats")["cmdstat_xrange"]["calls"])
    wait_until(lambda: int(redis.info("commandstats")["cmdstat_xrange"]["calls"]) > looks + 2)
    assert counted(gateway, broken) == 1
    assert planted.state(gateway).is_active
    assert counted(gateway, "gravity_guardrail_actions_total") == 0


def test_harm_counts_also_where_the_arms_sizes_do_not_fit_and_the_reason_says_so(
    upstream: Upstream,
    start_gateway: StartGateway,
    settings: dict[str, Any],
    redis: Redis,
    wait_until: WaitUntil,
) -> None:
    planted = Planted(settings["config_dir"], redis, "stop")
    gateway = start_gateway(upstream.url, **settings)
    planted.publish(gateway)
    planted.plant(num_lost=50)
    wait_until(lambda: planted.has_ended(gateway))
    why = gateway.deps.centre.history(1)[0].why
    assert why.endswith("the arms' sizes do not fit their shares either, so units are lost somewhere")
    assert gateway.deps.config.snapshot.tasks["rag_qa"].gravity_strength == 1.0


def test_gateways_take_turns_where_they_have_one_configuration(tmp_path: Path) -> None:
    here = GatewaySettings(config_dir=tmp_path)
    assert lock_key(here) == lock_key(GatewaySettings(config_dir=tmp_path / "tasks" / ".."))
    assert lock_key(here) != lock_key(GatewaySettings(config_dir=tmp_path / "tasks"))
    fleet = GatewaySettings(config_dir=tmp_path, config_store="redis", config_namespace="fleet")
    assert lock_key(fleet) == "ng:{cfg:fleet}:guardrails"


def test_labels_are_of_a_closed_set() -> None:
    names = ("rep_4", "feedback:stars", "feedback:anything", "made_up")
    assert [metric_label(name) for name in names] == ["rep_4", "feedback", "feedback", "other"]
