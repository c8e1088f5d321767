"""What a turn waits for before its first byte ends at one deadline, over real connections."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import orjson
import pytest
from redis import Redis

from tests.servers.gateway import CHAT, PLAIN, Gateway, StartGateway, events_of
from tests.servers.upstream import Hang, Pause, Script, StartUpstream, chunk, events, whole

WaitUntil = Callable[..., Any]
JSON = "application/json"
PINGING = Script([b": ping\n\n", Pause(0.05)] * 400)
SOON: dict[str, Any] = {"begin_timeout_s": 0.5, "patience_factor": 0.0}


def ask(gateway: Gateway, **body: Any) -> httpx.Response:
    return httpx.post(gateway.url + CHAT, json=PLAIN[CHAT] | body, timeout=30.0)


def refusal_of(answer: httpx.Response) -> str:
    error = answer.json()["error"]
    assert (answer.status_code, error["type"], error["code"]) == (504, "server_error", "upstream_timeout")
    return str(error["message"])


def test_a_worker_that_only_pings_is_waited_for_until_the_deadline(
    start_upstream: StartUpstream, start_gateway: StartGateway, wait_until: WaitUntil, valkey_url: str
) -> None:
    upstream = start_upstream()
    upstream.plays(PINGING)
    gateway = start_gateway(upstream.url, **SOON)
    answer = ask(gateway, stream=True)
    assert refusal_of(answer) == "No answer had begun within 0.5 s: 1 worker was asked, and none answered."
    wait_until(lambda: upstream.num_left == 1)
    worker = gateway.deps.pool.workers[0]
    assert (worker.num_in_flight, worker.breaker.state) == (0, "closed")
    with Redis.from_url(valkey_url) as redis:
        key = f"ng:turn:{answer.headers['x-gravity-turn-id']}"
        record = orjson.loads(wait_until(lambda: redis.get(key)))
    assert (record["outcome"]["status"], record["outcome"]["error_code"]) == ("error", "upstream_timeout")


def test_a_worker_that_only_pings_in_the_middle_of_a_stream_is_given_up(
    start_upstream: StartUpstream, start_gateway: StartGateway, wait_until: WaitUntil
) -> None:
    upstream = start_upstream()
    upstream.plays(Script([events(chunk("some"), chunk(" words"), done=False), *PINGING.pieces]))
    answer = ask(start_gateway(upstream.url, idle_timeout_s=0.3), stream=True)
    *_, error, done = events_of(answer.content)
    assert (answer.status_code, error["error"]["code"], done) == (200, "upstream_timeout", "[DONE]")
    wait_until(lambda: upstream.num_left == 1)


def test_a_turn_that_still_waits_for_a_place_at_the_deadline_leaves_the_queue(
    start_upstream: StartUpstream, start_gateway: StartGateway, wait_until: WaitUntil
) -> None:
    upstream = start_upstream()
    upstream.plays(Script([events(chunk("some"), done=False), Hang()]))
    gateway = start_gateway(upstream.url, worker_concurrency=1, queue_limit=5, **SOON)
    with httpx.stream("POST", gateway.url + CHAT, json=PLAIN[CHAT] | {"stream": True}, timeout=30.0) as first:
        assert first.status_code == 200
        said = refusal_of(ask(gateway, stream=True))
        assert said == "No answer had begun within 0.5 s: it still waited for a place at a worker."
        assert gateway.deps.admission.num_waiting == 0
    assert len(upstream.received) == 1


def test_documents_that_are_still_being_judged_at_the_deadline_are_no_worker_s_fault(
    start_upstream: StartUpstream, start_gateway: StartGateway, wait_until: WaitUntil
) -> None:
    upstream = start_upstream(is_native=True)
    upstream.is_slow_to_tokenize = True
    gateway = start_gateway(upstream.url, **SOON)
    wait_until(lambda: gateway.deps.pool.has_ready_worker)  # which then counts tokens, for ever
    documents = [{"id": "a", "text": "The bridge is open."}]
    said = refusal_of(ask(gateway, stream=True, documents=documents))
    assert said == "No answer had begun within 0.5 s: its documents were still being judged."
    assert upstream.received == []


def test_a_stream_that_has_begun_may_go_on_past_the_deadline(
    start_upstream: StartUpstream, start_gateway: StartGateway
) -> None:
    upstream = start_upstream()
    rest = events(chunk(" and more"), chunk(finish="stop"))
    upstream.plays(Script([events(chunk("some"), done=False), Pause(1.3), rest]))
    answer = ask(start_gateway(upstream.url, begin_timeout_s=1.0), stream=True)
    texts = [each["choices"][0]["delta"].get("content") for each in events_of(answer.content)[:-1]]
    assert (answer.status_code, "".join(filter(None, texts))) == (200, "some and more")


@pytest.mark.parametrize(("request_timeout_s", "status"), [(30.0, 200), (0.2, 504)])
def test_an_answer_that_is_not_streamed_may_take_the_longer_of_both_times(
    start_upstream: StartUpstream, start_gateway: StartGateway, request_timeout_s: float, status: int
) -> None:
    upstream = start_upstream()
    upstream.plays(Script([Pause(0.7), whole("late")], content_type=JSON))
    gateway = start_gateway(upstream.url, request_timeout_s=request_timeout_s, **SOON)
    assert ask(gateway).status_code == status
