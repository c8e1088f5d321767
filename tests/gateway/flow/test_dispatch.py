"""Which worker answers, what happens when one fails, over real connections."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import httpx
import orjson
import pytest
from redis import Redis

from gateway.context.selector import Selector
from tests.servers.gateway import CHAT, PLAIN, Gateway, StartGateway
from tests.servers.upstream import MODEL, Script, StartUpstream, Upstream, whole

WaitUntil = Callable[..., Any]
JSON = "application/json"
OK = Script([whole("ok")], content_type=JSON)
BUSY = Script([b"{}"], status=429, content_type=JSON)
BROKEN = Script([b"{}"], status=500, content_type=JSON)
STARTING = Script([b"{}"], status=503, content_type=JSON)


def ask(gateway: Gateway, **body: Any) -> httpx.Response:
    return httpx.post(gateway.url + CHAT, json=PLAIN[CHAT] | body, timeout=30.0)


def test_two_workers_share_the_requests(start_upstream: StartUpstream, start_gateway: StartGateway) -> None:
    one, other = start_upstream(), start_upstream()
    one.plays(OK)
    other.plays(OK)
    gateway = start_gateway(one.url, other.url)
    for _ in range(10):
        assert ask(gateway).status_code == 200
    assert (len(one.received), len(other.received)) == (5, 5)


def test_a_model_goes_to_the_worker_that_has_it(
    start_upstream: StartUpstream, start_gateway: StartGateway
) -> None:
    one, other = start_upstream(), start_upstream()
    other.models = ["other-model"]
    one.plays(OK)
    other.plays(OK)
    gateway = start_gateway(one.url, other.url)
    answers = [ask(gateway, model=model).json()["model"] for model in (MODEL, "other-model", "other-model")]
    assert answers == [MODEL, "other-model", "other-model"]
    assert [len(one.received), len(other.received)] == [1, 2]


@pytest.mark.parametrize("failure", [BUSY, BROKEN, STARTING, Script(dies_at_once=True)])
@pytest.mark.parametrize("is_streaming", [True, False])
def test_before_the_first_byte_another_worker_is_asked(
    start_upstream: StartUpstream,
    start_gateway: StartGateway,
    valkey_url: str,
    wait_until: WaitUntil,
    failure: Script,
    is_streaming: bool,
) -> None:
    failing, healthy = start_upstream(), start_upstream()
    failing.plays(failure)
    healthy.plays(OK if not is_streaming else Script([_stream()]))
    gateway = start_gateway(failing.url, healthy.url)
    answer = ask(gateway, stream=is_streaming)
    assert answer.status_code == 200
    assert (len(failing.received), len(healthy.received)) == (1, 1)
    with Redis.from_url(valkey_url) as redis:
        key = f"ng:turn:{answer.headers['x-gravity-turn-id']}"
        record = orjson.loads(wait_until(lambda: redis.get(key)))
    assert (record["num_attempts"], record["worker"]) == (2, healthy.url)
    assert record["outcome"]["status"] == "ok"


def _stream() -> bytes:
    end = {"index": 0, "delta": {"content": "ok"}, "finish_reason": "stop"}
    return b"data: " + orjson.dumps({"id": "c", "choices": [end]}) + b"\n\ndata: [DONE]\n\n"


def test_no_more_workers_are_asked_than_the_setting_says(
    start_upstream: StartUpstream, start_gateway: StartGateway
) -> None:
    upstreams = [start_upstream() for _ in range(4)]
    for upstream in upstreams:
        upstream.plays(BROKEN)
    gateway = start_gateway(*[upstream.url for upstream in upstreams], max_attempts=2)
    assert ask(gateway).status_code == 502
    assert sum(len(upstream.received) for upstream in upstreams) == 2


@pytest.mark.parametrize(
    ("first", "second", "status"),
    [
        (BUSY, BROKEN, 429),
        (BROKEN, BUSY, 429),
        (BUSY, BUSY, 429),
        (STARTING, STARTING, 503),
        (BROKEN, BROKEN, 502),
    ],
)
def test_where_all_refuse_the_client_hears_what_it_can_act_on(
    start_upstream: StartUpstream, start_gateway: StartGateway, first: Script, second: Script, status: int
) -> None:
    one, other = start_upstream(), start_upstream()
    one.plays(first)
    other.plays(second)
    answer = ask(start_gateway(one.url, other.url))
    assert answer.status_code == status
    assert ("retry-after" in answer.headers) == (status in (429, 503))


def test_a_failing_worker_is_taken_out_and_comes_back(
    start_upstream: StartUpstream, start_gateway: StartGateway, wait_until: WaitUntil
) -> None:
    failing, healthy = start_upstream(), start_upstream()
    failing.plays(BROKEN)
    healthy.plays(OK)
    gateway = start_gateway(failing.url, healthy.url, breaker_failures=2, breaker_cooldown_s=2.0)
    for _ in range(8):
        assert ask(gateway).status_code == 200
    assert len(failing.received) == 2
    failing.plays(OK)
    served = len(failing.received)
    wait_until(lambda: ask(gateway).status_code == 200 and len(failing.received) > served)
    assert gateway.deps.pool.workers[0].breaker.state == "closed"


def test_a_worker_that_is_gone_is_taken_out_at_once_and_comes_back(
    start_upstream: StartUpstream, start_gateway: StartGateway, wait_until: WaitUntil
) -> None:
    leaving, staying = start_upstream(), start_upstream()
    leaving.plays(OK)
    staying.plays(OK)
    gateway = start_gateway(leaving.url, staying.url)
    leaving.stop()
    assert [ask(gateway).status_code for _ in range(6)] == [200] * 6
    assert not gateway.deps.pool.workers[0].is_reachable
    leaving.start()
    wait_until(lambda: gateway.deps.pool.workers[0].is_reachable)
    wait_until(lambda: ask(gateway).status_code == 200 and leaving.received)


def test_the_clients_key_stays_here_and_the_workers_own_is_sent(
    upstream: Upstream, start_gateway: StartGateway
) -> None:
    upstream.plays(OK)
    gateway = start_gateway(upstream.url, worker_api_key="the-workers-key")
    headers = {"Authorization": "Bearer the-clients-key"}
    assert httpx.post(gateway.url + CHAT, json=PLAIN[CHAT], headers=headers).status_code == 200
    assert upstream.headers[0]["authorization"] == "Bearer the-workers-key"
    assert "the-clients-key" not in str(upstream.headers)


def test_the_record_says_what_the_worker_that_answered_computes_with(
    start_upstream: StartUpstream, start_gateway: StartGateway, valkey_url: str, wait_until: WaitUntil
) -> None:
    failing, healthy = start_upstream(), start_upstream()
    failing.environment, healthy.environment = {"dtype": "bf16"}, {"dtype": "fp32", "threads": 3}
    failing.plays(BROKEN)
    healthy.plays(OK)
    gateway = start_gateway(failing.url, healthy.url)
    first, second = [record_of(ask(gateway), valkey_url, wait_until)["environment"] for _ in range(2)]
    assert first["worker"] == second["worker"] == {"level": "native", "dtype": "fp32", "threads": 3}
    assert first["gateway"]["encoder"] == "all-MiniLM-L6-v2"
    assert first["gateway"]["selector"] == Selector.load().version
    assert first["gateway"]["version"] == version("narrative-gravity")


def test_of_another_server_what_it_shows_is_recorded(
    start_upstream: StartUpstream, start_gateway: StartGateway, valkey_url: str, wait_until: WaitUntil
) -> None:
    opaque = start_upstream(is_native=False)
    opaque.environment = {"dtype": "fp32"}
    opaque.plays(OK)
    shown = record_of(ask(start_gateway(opaque.url)), valkey_url, wait_until)["environment"]["worker"]
    assert shown["level"] == "opaque"
    assert "dtype" not in shown
    assert shown["server"].startswith("Python")


def test_a_far_too_large_description_is_left_out(
    start_upstream: StartUpstream, start_gateway: StartGateway, valkey_url: str, wait_until: WaitUntil
) -> None:
    worker = start_upstream()
    worker.environment = {"story": "x" * 100_000}
    worker.plays(OK)
    record = record_of(ask(start_gateway(worker.url)), valkey_url, wait_until)
    assert record["environment"]["worker"] == {"level": "native"}


def record_of(answer: httpx.Response, valkey_url: str, wait_until: WaitUntil) -> dict[str, Any]:
    assert answer.status_code == 200, answer.text
    with Redis.from_url(valkey_url) as redis:
        key = f"ng:turn:{answer.headers['x-gravity-turn-id']}"
        record: dict[str, Any] = orjson.loads(wait_until(lambda: redis.get(key)))
    return record


def test_prompts_that_begin_alike_go_to_one_worker_and_short_ones_by_load(
    start_upstream: StartUpstream, start_gateway: StartGateway
) -> None:
    upstreams = [start_upstream() for _ in range(3)]
    for upstream in upstreams:
        upstream.plays(OK)
    gateway = start_gateway(*[upstream.url for upstream in upstreams], affinity_chars=200)
    system = {"role": "system", "content": "Answer from the harbour's rules. " * 10}
    for number in range(6):
        question = {"role": "user", "content": f"question {number}"}
        assert ask(gateway, messages=[system, question]).status_code == 200
    assert sorted(len(upstream.received) for upstream in upstreams) == [0, 0, 6]
    for _ in range(6):
        assert ask(gateway).status_code == 200
    assert sorted(len(upstream.received) for upstream in upstreams) == [3, 3, 6]
