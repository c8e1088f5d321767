"""Workers that come and go while gateways serve, over /admin/workers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import httpx
import orjson
from redis import Redis

from tests.servers.gateway import CHAT, PLAIN, Gateway, StartGateway
from tests.servers.upstream import Script, StartUpstream, Upstream, whole

WaitUntil = Callable[..., Any]
OK = Script([whole("ok")], content_type="application/json")
PATH = "/admin/workers"


def ask(gateway: Gateway) -> httpx.Response:
    return httpx.post(gateway.url + CHAT, json=PLAIN[CHAT], timeout=30.0)


def register(gateway: Gateway, worker: Upstream, **more: Any) -> httpx.Response:
    return httpx.post(gateway.url + PATH, json={"url": worker.url, **more})


def names(gateway: Gateway) -> set[str]:
    return {worker.name for worker in gateway.deps.pool.workers}


def test_a_registered_worker_serves_at_every_gateway_and_goes_again(
    start_upstream: StartUpstream, start_gateway: StartGateway, wait_until: WaitUntil
) -> None:
    worker = start_upstream()
    worker.plays(OK)
    shared: dict[str, Any] = {"config_namespace": uuid4().hex, "probe_interval_s": 0.1}
    one, other = start_gateway(**shared), start_gateway(**shared)
    assert ask(one).status_code == 503
    listed = register(one, worker, lifetime_s=600)
    assert listed.status_code == 200, listed.text
    [entry] = listed.json()["registrations"]
    assert (entry["url"], entry["registered_by"]) == (worker.url, "loopback")
    for gateway in (one, other):
        wait_until(lambda at=gateway: ask(at).status_code == 200)
    assert httpx.delete(other.url + PATH, params={"url": worker.url}).status_code == 200
    for gateway in (one, other):
        wait_until(lambda at=gateway: not names(at))
        assert ask(gateway).status_code == 503
        assert worker.url not in httpx.get(gateway.url + "/metrics").text.split("gravity_worker_ready")[-1]
    assert httpx.delete(other.url + PATH, params={"url": worker.url}).status_code == 404


def test_a_draining_worker_finishes_what_it_has_and_gets_nothing_new(
    start_upstream: StartUpstream, start_gateway: StartGateway, wait_until: WaitUntil
) -> None:
    leaving, staying = start_upstream(), start_upstream()
    leaving.plays(OK)
    staying.plays(OK)
    gateway = start_gateway(leaving.url, config_namespace=uuid4().hex, probe_interval_s=0.1)
    leaving.hold()
    answers: list[int] = []
    asking = threading.Thread(target=lambda: answers.append(ask(gateway).status_code))
    asking.start()
    wait_until(lambda: leaving.num_open == 1)
    assert register(gateway, staying).status_code == 200
    assert register(gateway, leaving, drains=True).status_code == 200
    wait_until(lambda: ask(gateway).status_code == 200)
    shown = {each["name"]: each for each in httpx.get(gateway.url + PATH).json()["data"]}
    assert (shown[leaving.url]["is_draining"], shown[leaving.url]["num_in_flight"]) == (True, 1)
    assert shown[leaving.url]["is_registered"] is False
    assert len(leaving.received) == 1
    leaving.release()
    asking.join(10.0)
    assert answers == [200]
    assert httpx.delete(gateway.url + PATH, params={"url": leaving.url}).status_code == 200
    assert httpx.delete(gateway.url + PATH, params={"url": leaving.url}).status_code == 409
    wait_until(lambda: gateway.deps.pool.workers[0].is_ready)


def test_a_removed_workers_open_turn_finishes_and_its_session_is_closed(
    start_upstream: StartUpstream, start_gateway: StartGateway, wait_until: WaitUntil
) -> None:
    worker = start_upstream()
    worker.plays(OK)
    gateway = start_gateway(config_namespace=uuid4().hex, probe_interval_s=0.1)
    register(gateway, worker)
    wait_until(lambda: gateway.deps.pool.has_ready_worker)
    [known] = gateway.deps.pool.workers
    worker.hold()
    answers: list[int] = []
    asking = threading.Thread(target=lambda: answers.append(ask(gateway).status_code))
    asking.start()
    wait_until(lambda: worker.num_open == 1)
    httpx.delete(gateway.url + PATH, params={"url": worker.url})
    assert not names(gateway)
    assert not known.client.is_closed
    worker.release()
    asking.join(10.0)
    assert answers == [200]
    wait_until(lambda: known.client.is_closed)


def test_turns_go_to_workers_registered_for_their_bucket_and_to_others_where_those_are_away(
    start_upstream: StartUpstream, start_gateway: StartGateway, wait_until: WaitUntil, valkey_url: str
) -> None:
    sure, unsure = start_upstream(), start_upstream()
    sure.plays(OK)
    unsure.plays(OK)
    gateway = start_gateway(
        sure.url, config_namespace=uuid4().hex, probe_interval_s=0.1, worker_buckets={sure.url: [0, 1]}
    )
    listed = register(gateway, unsure, buckets=[3, 2]).json()
    assert [each["buckets"] for each in listed["data"]] == [[0, 1], [2, 3]]
    assert [each["buckets"] for each in listed["registrations"]] == [[2, 3]]
    wait_until(lambda: all(worker.is_ready for worker in gateway.deps.pool.workers))

    def asked() -> dict[str, Any]:
        told: dict[str, Any] = ask(gateway).json()["gravity"]
        return told

    told = [asked() for _ in range(3)]
    bucket = told[0]["bucket"]
    assert {(each["worker"], each["bucket_pool"]) for each in told} == {
        (sure.url if bucket < 2 else unsure.url, "own")
    }
    assert register(gateway, unsure if bucket > 1 else sure, buckets=[7]).status_code == 200
    answer = ask(gateway)
    assert (answer.status_code, answer.json()["gravity"]["bucket_pool"]) == (200, "other")
    metrics = httpx.get(gateway.url + "/metrics").text
    assert f'gravity_bucket_pool_total{{bucket="{bucket}",pool="own"}} 3.0' in metrics
    assert f'gravity_bucket_pool_total{{bucket="{bucket}",pool="other"}} 1.0' in metrics
    with Redis.from_url(valkey_url) as redis:
        key = f"ng:turn:{answer.headers['x-gravity-turn-id']}"
        record = orjson.loads(wait_until(lambda: redis.get(key)))
    assert record["bucket_pool"] == "other"


def test_what_is_no_address_is_a_400_that_names_it(start_gateway: StartGateway) -> None:
    gateway = start_gateway()
    for url in ("ftp://host", "", "x" * 3_000):
        answer = httpx.post(gateway.url + PATH, json={"url": url})
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_value")
    for wrong in ({"lifetime_s": 0}, {"buckets": [64]}, {"buckets": [-1]}, {"buckets": ["0"]}):
        assert httpx.post(gateway.url + PATH, json={"url": "http://h", **wrong}).status_code == 400


def test_the_list_needs_the_admin_key(start_gateway: StartGateway) -> None:
    gateway = start_gateway(admin_key="the-admin-key")
    assert httpx.get(gateway.url + PATH).status_code == 401
    allowed = httpx.get(gateway.url + PATH, headers={"Authorization": "Bearer the-admin-key"})
    assert allowed.json()["object"] == "list"
