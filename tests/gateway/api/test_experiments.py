"""``/admin/experiments`` of a real gateway."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from pydantic import TypeAdapter
from redis import Redis

from gateway.api.experiments import ExperimentList
from gateway.outcomes.entry import Exposure, TurnOutcome, encode_entry, outcomes_key
from tests.servers.gateway import Scripted

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
