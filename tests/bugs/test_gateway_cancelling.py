"""Public reports about clients that leave and workers that stay away, as inputs to the gateway."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import httpx
import orjson
import pytest
from redis import Redis

from tests.servers.gateway import CHAT, PLAIN, Scripted, StartGateway, events_of
from tests.servers.upstream import Hang, Pause, Script, StartUpstream, Upstream, chunk, events, whole

WaitUntil = Callable[..., Any]
JSON = "application/json"
STOP_S = 0.5
"""How soon a worker must be rid of a request whose client has left."""


@pytest.fixture
def scripted(scripted_at_each_level: Scripted) -> Scripted:
    """Every report is tried with a native worker and with a foreign one."""
    return scripted_at_each_level


def leave_after(scripted: Scripted, seconds: float, **body: Any) -> None:
    with pytest.raises(httpx.ReadTimeout):
        scripted.client.post(CHAT, json=PLAIN[CHAT] | body, timeout=seconds)


def status_of(turn_id: str, valkey_url: str) -> str | None:
    with Redis.from_url(valkey_url) as redis:
        record = redis.get(f"ng:turn:{turn_id}")
    return orjson.loads(record)["outcome"]["status"] if isinstance(record, bytes) else None


def test_litellm_30245_leaving_mid_stream_stops_the_worker(
    scripted: Scripted, valkey_url: str, wait_until: WaitUntil
) -> None:
    scripted.upstream.plays(Script([events(chunk("some"), done=False), Hang()]))
    with scripted.client.stream("POST", CHAT, json=PLAIN[CHAT] | {"stream": True}) as response:
        turn_id = response.headers["x-gravity-turn-id"]
        assert next(response.iter_bytes())
    wait_until(lambda: scripted.upstream.num_left == 1, timeout_s=STOP_S)
    assert scripted.upstream.num_open == 0
    assert wait_until(lambda: status_of(turn_id, valkey_url)) == "cancelled"
    assert scripted.gateway.deps.pool.workers[0].num_in_flight == 0


@pytest.mark.parametrize("script", [Script(is_silent=True), Script([Hang()])])
def test_litellm_31499_leaving_before_the_first_token_stops_the_worker(
    scripted: Scripted, wait_until: WaitUntil, script: Script
) -> None:
    scripted.upstream.plays(script)
    leave_after(scripted, 0.3, stream=True)
    wait_until(lambda: scripted.upstream.num_left == 1, timeout_s=STOP_S)
    assert scripted.upstream.num_open == 0


@pytest.mark.parametrize(
    "script", [Script(is_silent=True), Script([whole("a")[:20], Hang()], content_type=JSON)]
)
def test_litellm_37140_leaving_a_call_that_is_not_streamed_stops_the_worker(
    scripted: Scripted, wait_until: WaitUntil, script: Script
) -> None:
    scripted.upstream.plays(script)
    leave_after(scripted, 0.3)
    wait_until(lambda: scripted.upstream.num_left == 1, timeout_s=STOP_S)
    assert scripted.upstream.num_open == 0


def test_litellm_31499_leaving_during_a_retry_stops_the_second_worker(
    start_upstream: StartUpstream, start_gateway: StartGateway, wait_until: WaitUntil
) -> None:
    first, second = start_upstream(), start_upstream()
    first.plays(Script(dies_at_once=True))
    second.plays(Script(is_silent=True))
    gateway = start_gateway(first.url, second.url)
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(gateway.url + CHAT, json=PLAIN[CHAT] | {"stream": True}, timeout=0.5)
    assert len(first.received) == len(second.received) == 1
    wait_until(lambda: second.num_left == 1, timeout_s=STOP_S)
    assert [worker.num_in_flight for worker in gateway.deps.pool.workers] == [0, 0]


def test_litellm_27955_after_a_cancelled_request_the_next_is_served(
    scripted: Scripted, wait_until: WaitUntil
) -> None:
    scripted.upstream.plays(Script(is_silent=True), events(chunk("next"), chunk(finish="stop")))
    leave_after(scripted, 0.2, stream=True)
    wait_until(lambda: scripted.upstream.num_left == 1, timeout_s=STOP_S)
    assert scripted.stream()[-1] == "[DONE]"


def test_litellm_27955_the_only_slot_is_free_once_its_client_has_left(
    start_upstream: StartUpstream, start_gateway: StartGateway, wait_until: WaitUntil
) -> None:
    upstream = start_upstream()
    upstream.plays(
        Script([events(chunk("some"), done=False), Hang()]), Script([whole("ok")], content_type=JSON)
    )
    gateway = start_gateway(upstream.url, worker_concurrency=1)
    with httpx.stream("POST", gateway.url + CHAT, json=PLAIN[CHAT] | {"stream": True}) as response:
        pieces = response.iter_bytes()  # kept: a collected iterator closes the connection
        assert next(pieces)
        assert httpx.post(gateway.url + CHAT, json=PLAIN[CHAT]).status_code == 429
    wait_until(lambda: upstream.num_left == 1, timeout_s=STOP_S)
    served = wait_until(lambda: httpx.post(gateway.url + CHAT, json=PLAIN[CHAT]), timeout_s=STOP_S)
    assert served.status_code == 200
    assert len(upstream.received) == 2


def test_production_stack_749_a_worker_that_never_answers_is_taken_out_and_others_serve(
    start_upstream: StartUpstream, start_gateway: StartGateway, wait_until: WaitUntil
) -> None:
    silent, healthy = start_upstream(), start_upstream()
    silent.plays(Script(is_silent=True))
    healthy.plays(Script([whole("ok")], content_type=JSON))
    gateway = start_gateway(
        silent.url, healthy.url, first_token_timeout_s=0.2, request_timeout_s=0.2, breaker_failures=2
    )
    statuses = [httpx.post(gateway.url + CHAT, json=PLAIN[CHAT]).status_code for _ in range(8)]
    assert statuses == [200] * 8
    assert len(silent.received) == 2
    assert not gateway.deps.pool.workers[0].is_ready


def test_posthog_73863_a_stream_that_ends_in_time_finishes_after_sigterm(
    upstream: Upstream, start_process: Any, valkey_url: str, wait_until: WaitUntil
) -> None:
    rest = events(chunk(" and the rest"), chunk(finish="stop"))
    upstream.plays(Script([events(chunk("some"), done=False), Pause(1.0), rest]))
    running = _gateway_process(start_process, upstream, valkey_url, drain_s="20")
    content = _stream_through_sigterm(running, wait_until)
    sent = events_of(content)
    assert [each["choices"][0]["delta"].get("content") for each in sent[:2]] == ["some", " and the rest"]
    assert sent[2]["choices"][0]["finish_reason"] == "stop"
    assert sent[-1] == "[DONE]"
    assert running.process.wait(10.0) == 0


def test_posthog_73863_a_stream_that_does_not_end_gets_an_error_event(
    upstream: Upstream, start_process: Any, valkey_url: str, wait_until: WaitUntil
) -> None:
    upstream.plays(Script([events(chunk("some"), done=False), Hang()]))
    running = _gateway_process(start_process, upstream, valkey_url, drain_s="0.5")
    sent = events_of(_stream_through_sigterm(running, wait_until))
    assert sent[-2]["error"]["code"] == "shutting_down"
    assert sent[-1] == "[DONE]"
    assert running.process.wait(10.0) == 0
    wait_until(lambda: upstream.num_left == 1, timeout_s=STOP_S)


def _stream_through_sigterm(running: Any, wait_until: WaitUntil) -> bytes:
    """Return a stream's content. After its first piece comes SIGTERM; the gateway is not ready at once."""
    with httpx.stream("POST", running.url + CHAT, json=PLAIN[CHAT] | {"stream": True}) as response:
        pieces = response.iter_raw()
        content = next(pieces)
        running.signal(signal.SIGTERM)
        wait_until(lambda: _readiness(running.url) == 503, timeout_s=0.5)
        return content + b"".join(pieces)


def _gateway_process(start_process: Any, upstream: Upstream, valkey_url: str, *, drain_s: str) -> Any:
    environment = {
        "NG_PORT": "0",
        "NG_WORKERS": upstream.url,
        "NG_REDIS_URL": valkey_url,
        "NG_DRAIN_S": drain_s,
        "NG_PROBE_INTERVAL_S": "0.2",
        "NG_PRELOAD_ENCODER": "false",
    }
    return start_process(["-m", "gateway"], environment)


def _readiness(url: str) -> int:
    return httpx.get(url + "/readyz").status_code
