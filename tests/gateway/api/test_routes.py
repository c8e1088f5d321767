"""Paths that are there and paths that are not, in the shape of their prefix; metrics that do not grow."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from gateway.api.routes import PATHS
from tests.servers.gateway import Scripted, StartGateway
from tests.servers.upstream import MODEL, Script, Upstream, whole


def test_an_unknown_path_is_an_openai_error(scripted: Scripted) -> None:
    answer = scripted.client.get("/v1/nothing")
    assert answer.status_code == 404
    assert answer.json()["error"]["type"] == "invalid_request_error"


def test_a_wrong_method_says_which_is_right(scripted: Scripted) -> None:
    answer = scripted.client.get("/v1/chat/completions")
    assert answer.status_code == 405
    assert answer.headers["allow"] == "POST"
    assert answer.json()["error"]["code"] == "method_not_allowed"


@pytest.mark.parametrize(
    "path", ["/admin/nothing", "/admin/turns/not-there", "/admin/turns/a%2Fb", "/admin/turns/%00"]
)
def test_under_admin_an_error_is_a_problem(scripted: Scripted, path: str) -> None:
    answer = scripted.client.get(path)
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["status"] == 404


def test_models_are_those_of_the_workers(scripted: Scripted) -> None:
    listed = scripted.client.get("/v1/models").json()
    assert listed["object"] == "list"
    assert [(model["id"], model["object"], model["max_model_len"]) for model in listed["data"]] == [
        (MODEL, "model", 2048)
    ]
    assert scripted.client.get(f"/v1/models/{MODEL}").json() == listed["data"][0]
    assert scripted.client.get("/v1/models/some/other").json()["error"]["code"] == "model_not_found"


def test_readiness_follows_the_workers(
    upstream: Upstream, start_gateway: StartGateway, wait_until: Callable[..., Any]
) -> None:
    gateway = start_gateway(upstream.url)
    assert httpx.get(gateway.url + "/readyz").status_code == 200
    upstream.is_ready = False
    answer = wait_until(lambda: _if_status(gateway.url + "/readyz", 503))
    assert answer.json()["reasons"] == ["no worker is ready"]
    assert httpx.get(gateway.url + "/livez").status_code == 200
    assert httpx.get(gateway.url + "/health").json()["status"] == "unavailable"
    upstream.is_ready = True
    wait_until(lambda: _if_status(gateway.url + "/readyz", 200))


def _if_status(url: str, status: int) -> httpx.Response | None:
    answer = httpx.get(url)
    return answer if answer.status_code == status else None


def test_health_tells_people_how_everything_is(scripted: Scripted) -> None:
    report = scripted.client.get("/health").json()
    assert report["status"] == "ok"
    assert report["config"]["sha"] == scripted.gateway.deps.config.snapshot.sha
    assert report["redis"]["is_answering"]
    (worker,) = report["workers"]
    assert (worker["name"], worker["level"], worker["is_ready"]) == (scripted.upstream.url, "native", True)


def test_litellm_39136_made_up_names_of_every_kind_add_no_series(scripted: Scripted) -> None:
    scripted.upstream.plays(Script([whole("ok")], content_type="application/json"))

    def provoke(name: str) -> None:
        scripted.client.get(f"/{name}")
        scripted.client.get(f"/v1/models/{name}")
        scripted.client.get(f"/admin/turns/{name}")
        scripted.post(model=name)
        scripted.post(task=name)
        scripted.post(user=name)
        scripted.client.get("/livez", headers={"X-Request-Id": name})
        scripted.client.get("/metrics")

    provoke("first")
    before = series_of(scripted)
    for number in range(20):
        provoke(f"made-up-{number}")
    assert series_of(scripted) == before
    assert not any("made-up" in line for line in before)


def series_of(scripted: Scripted) -> set[str]:
    text = scripted.client.get("/metrics").text
    lines = (line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#"))
    return {line for line in lines if "_created" not in line}


def test_metrics_count_what_happens(scripted: Scripted) -> None:
    scripted.upstream.plays(Script([whole("ok")], content_type="application/json"))

    def turns() -> float:
        lines = scripted.client.get("/metrics").text.splitlines()
        ok = [line for line in lines if re.match(r'gravity_turns_total\{.*outcome="ok"', line)]
        return sum(float(line.rpartition(" ")[2]) for line in ok)

    before = turns()
    for _ in range(3):
        scripted.post()
    assert turns() == before + 3


def test_the_table_names_every_path_once() -> None:
    assert len({(path.method, path.template) for path in PATHS}) == len(PATHS)
