"""``/admin/experiments`` of a real gateway."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from pydantic import TypeAdapter
from redis import Redis

from gateway.api.experiments import ExperimentList
from gateway.outcomes.entry import Exposure, TurnOutcome, encode_entry, outcomes_key
from tests.conftest import WaitUntil
from tests.servers.gateway import CHAT, PLAIN, Scripted, StartGateway
from tests.servers.upstream import Script, Upstream, whole

ID = "rag-gain"
"""The experiment of the repository's own configuration."""


@pytest.fixture
def observed(valkey_url: str) -> Iterator[None]:
    """Two units with a turn each."""
    key = outcomes_key(ID, 1)
    with Redis.from_url(valkey_url) as redis:
        kept = redis.exists(key)
        for arm, latency in (("treatment", 1.0), ("control", 2.0)):
            exposure: Any = encode_entry(Exposure(f"unit-{arm}", arm, 10.0))
            outcome: Any = encode_entry(
                TurnOutcome(f"turn-{arm}", f"unit-{arm}", arm, 11.0, {"latency_s": latency})
            )
            redis.xadd(key, exposure)
            redis.xadd(key, outcome)
        yield
        if not kept:
            redis.delete(key)


def test_the_list_has_every_experiment_with_its_arms(scripted: Scripted, observed: None) -> None:
    response = scripted.client.get("/admin/experiments")
    assert response.status_code == 200, response.text
    listed = TypeAdapter(ExperimentList).validate_json(response.content).data
    found = next(each for each in listed if each.id == ID)
    assert found.arms == {"treatment": 0.5, "control": 0.5}
    assert (found.version, found.control, found.is_active) == (1, "control", True)
    assert found.num_entries >= 4


def test_the_report_has_verdict_metrics_and_sizes(scripted: Scripted, observed: None) -> None:
    response = scripted.client.get(f"/admin/experiments/{ID}", params={"version": 1})
    assert response.status_code == 200, response.text
    report = response.json()
    assert report["experiment"] == ID
    assert report["verdict"]["kind"] == "undecided"
    first = report["metrics"][0]
    assert first["metric"]["name"] == "latency_s"
    assert {arm["arm"] for arm in first["arms"]} == {"treatment", "control"}
    assert first["comparisons"][0]["difference"]["low"] is None
    assert report["sample_ratio"]["is_alarm"] is False


def test_what_never_was_is_a_404_and_a_bad_version_a_400(scripted: Scripted) -> None:
    for path, status, code in (
        ("/admin/experiments/never", 404, "not_found"),
        (f"/admin/experiments/{ID}?version=77", 404, "not_found"),
        (f"/admin/experiments/{ID}?version=x", 400, "invalid_value"),
        (f"/admin/experiments/{ID}?versoin=1", 400, "invalid_value"),
    ):
        response = scripted.client.get(path)
        assert (response.status_code, response.json()["code"]) == (status, code), path
        assert response.headers["content-type"] == "application/problem+json"


def test_another_name_than_this_machines_needs_a_key(scripted: Scripted) -> None:
    for path in ("/admin/experiments", f"/admin/experiments/{ID}"):
        response = httpx.get(scripted.gateway.url + path, headers={"host": "gateway.example"})
        assert (response.status_code, response.json()["code"]) == (403, "insufficient_scope")


def test_what_a_gateway_serves_is_what_it_reports(
    upstream: Upstream, start_gateway: StartGateway, tmp_path: Path, wait_until: WaitUntil
) -> None:
    name = f"served-{uuid4().hex[:8]}"
    for kind in ("tasks", "experiments"):
        (tmp_path / kind).mkdir()
    (tmp_path / "tasks" / "default.yaml").write_text("task_type: default\n")
    (tmp_path / "experiments" / f"{name}.yaml").write_text(
        f"id: {name}\nversion: 3\nenrol_seed: a\narm_seed: b\nprimary_metric: error\n"
        "arms: [{name: treatment, start: 0}, {name: control, start: 0.5, pruning: false}]\n"
    )
    empty = Script([whole("")], content_type="application/json")  # so that no encoder has to be loaded
    upstream.plays(empty)
    gateway = start_gateway(upstream.url, config_dir=tmp_path)
    with httpx.Client(base_url=gateway.url, timeout=60.0) as client:
        lanes = []
        for number in range(60):
            answer = client.post(CHAT, json={**PLAIN[CHAT], "user": f"user-{number % 50}"})
            assert answer.status_code == 200, answer.text
            lanes.append(answer.json()["gravity"]["lane"])
        counts = Counter(lanes[:50])

        def report() -> Any:
            found = client.get(f"/admin/experiments/{name}").json()
            turns = sum(arm["num_turns"] for each in found["metrics"][:1] for arm in each["arms"])
            return found if turns == 60 else None

        found = wait_until(report)
    assert (found["version"], found["sample_ratio"]["counts"]) == (3, dict(counts))
    errors = found["metrics"][0]
    assert errors["metric"]["name"] == "error"
    assert {arm["arm"]: arm["num_units"] for arm in errors["arms"]} == dict(counts)
    assert [arm["mean"]["mean"] for arm in errors["arms"]] == [0.0, 0.0]
    assert not any(found["exclusions"].values())
    assert found["verdict"]["text"].startswith("not decided yet: share of errors 0")
