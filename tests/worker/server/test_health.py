"""Health, models and metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx
import openai
from prometheus_client.parser import text_string_to_metric_families

if TYPE_CHECKING:
    from tests.conftest import RunningProcess
    from tests.worker.server.conftest import ReadMetric


def test_it_lives_and_is_ready(client: httpx.Client, model_name: str) -> None:
    assert client.get("/livez").json() == {"status": "alive"}
    ready = client.get("/readyz")
    assert ready.status_code == 200
    assert ready.json() == {"status": "ready", "model": model_name}


def test_the_model_says_what_it_is(client: httpx.Client, sdk: openai.OpenAI, model_name: str) -> None:
    [model] = client.get("/v1/models").json()["data"]
    assert model["id"] == model_name
    assert model["object"] == "model"
    assert model["max_model_len"] == 1024
    assert model["gravity"]["protocol"] == 1
    assert model["gravity"]["dtype"] == "fp32"
    assert client.get(f"/v1/models/{model_name}").json() == model
    assert client.get("/v1/models").headers["x-gravity-worker"] == "native"
    assert [each.id for each in sdk.models.list()] == [model_name]


def test_tokens_and_choices_are_counted(
    client: httpx.Client, worker_server: RunningProcess, read_metric: ReadMetric, model_name: str
) -> None:
    def counts() -> list[float]:
        url = worker_server.url
        return [
            read_metric(url, "ng_worker_prompt_tokens_total"),
            read_metric(url, "ng_worker_completion_tokens_total"),
            read_metric(url, "ng_worker_choices_total", finish="length"),
            read_metric(url, "ng_worker_requests_total", route="/v1/completions", status_class="2xx"),
            read_metric(url, "ng_worker_time_to_first_token_seconds_count"),
            read_metric(url, "ng_worker_engine_tokens_total"),
        ]

    before = counts()
    request = {"model": model_name, "prompt": [5, 6, 7], "max_tokens": 4, "n": 2, "ignore_eos": True}
    assert client.post("/v1/completions", json=request).status_code == 200
    assert [now - then for now, then in zip(counts(), before, strict=True)] == [3, 8, 2, 1, 1, 8]


def test_made_up_names_and_paths_make_no_series(client: httpx.Client) -> None:
    def series() -> set[tuple[str, tuple[tuple[str, str], ...]]]:
        families = text_string_to_metric_families(client.get("/metrics").text)
        return {
            (sample.name, tuple(sorted(sample.labels.items())))
            for family in families
            for sample in family.samples
        }

    def probe(name: str) -> None:
        client.get(f"/{name}")
        client.get(f"/v1/models/{name}")
        client.post("/v1/completions", json={"model": name, "prompt": "Hi"})

    probe("first")
    before = series()
    for number in range(100):
        probe(f"name-{number}")
    assert series() == before
    assert ("ng_worker_requests_total", (("route", "other"), ("status_class", "4xx"))) in before


def test_the_trace_has_its_counters(
    client: httpx.Client, worker_server: RunningProcess, read_metric: ReadMetric
) -> None:
    text = client.get("/metrics").text
    for name in (
        "ng_worker_trace_steps_written_total",
        "ng_worker_trace_steps_spilled_total",
        "ng_worker_trace_steps_lost_total",
        "ng_worker_trace_reconnects_total",
        "ng_worker_trace_steps_queued",
        "ng_worker_trace_spill_bytes",
    ):
        assert f"\n{name} " in text
    assert read_metric(worker_server.url, "ng_worker_trace_steps_lost_total") == 0
