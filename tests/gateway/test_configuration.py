"""The configuration centre as a whole gateway has it."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
from redis import Redis

from gateway.store.centre import Note
from gateway.store.documents import Documents
from tests.conftest import WaitUntil
from tests.servers.gateway import StartGateway

NAMESPACE = "wired"


def gauge(metrics: str, name: str) -> float:
    return next(float(line.split()[1]) for line in metrics.splitlines() if line.startswith(f"{name} "))


def test_a_gateway_over_redis_fills_follows_and_reports(
    start_gateway: StartGateway, valkey_url: str, tmp_path: Path, wait_until: WaitUntil
) -> None:
    gateway = start_gateway(
        wait=False,
        config_store="redis",
        config_namespace=NAMESPACE,
        state_dir=tmp_path,
        config_poll_s=0.1,
        replica_id="gw-1",
    )
    deps = gateway.deps
    first = deps.config.snapshot
    assert deps.centre.head().sha == first.sha
    assert json.loads((tmp_path / f"{NAMESPACE}.json").read_text())["sha"] == first.sha
    documents = deps.centre.head().documents
    tasks = {**documents.tasks, "new": {"task_type": "new", "gravity_strength": 0.5}}
    published = deps.centre.publish(Documents(tasks, documents.experiments), Note("anna", "one task more"))
    wait_until(lambda: deps.config.snapshot.sha == published.sha, timeout_s=2.0)
    assert "new" not in first.tasks  # who began with it keeps it

    def reported() -> dict[str, object] | None:
        with Redis.from_url(valkey_url) as redis:
            report = json.loads(redis.get(f"ng:{{cfg:{NAMESPACE}}}:replica:gw-1") or "{}")
        return report if report.get("number") == 2 else None

    report = wait_until(reported, timeout_s=3.0)
    assert (report["sha"], report["last_error"], report["store"]) == (published.sha, None, "redis")
    metrics = httpx.get(f"{gateway.url}/metrics").text
    assert gauge(metrics, "gravity_config_version") == 2.0
    assert gauge(metrics, "gravity_config_last_reload_successful") == 1.0
    assert gauge(metrics, "gravity_config_loaded_timestamp_seconds") >= first.loaded_at
    assert published.sha not in metrics
