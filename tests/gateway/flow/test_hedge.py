"""A silent worker is raced by another before the first byte, over real connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from threading import Thread
from time import monotonic
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import httpx
import orjson
import pytest
from redis import Redis

from gateway.flow.attempt import Attempt, Begun, Place
from gateway.flow.hedge import Race
from gateway.flow.turn import Turn
from gateway.pool.registry import Pool, RequestSize
from gateway.pool.reply import Reply
from gateway.pool.worker import Worker
from gateway.settings import GatewaySettings
from gateway.telemetry.metrics import Metrics
from tests.servers.gateway import CHAT, PLAIN, Gateway, StartGateway, events_of
from tests.servers.upstream import Hang, Pause, Script, StartUpstream, chunk, events, whole

if TYPE_CHECKING:
    from gateway.flow.deps import Deps

WaitUntil = Callable[..., Any]
SILENT = Script(is_silent=True)
NO_TOKEN = Script([b": busy\n\n", Hang()])
STREAM = Script([events(chunk("ok"), chunk(finish="stop"))])
SOON: dict[str, Any] = {"patience_ceiling_s": 0.2, "patience_floor_s": 0.1}


def stream(gateway: Gateway) -> httpx.Response:
    return httpx.post(gateway.url + CHAT, json=PLAIN[CHAT] | {"stream": True}, timeout=30.0)


def text_of(answer: httpx.Response) -> str:
    assert answer.status_code == 200, answer.text
    return "".join(
        each["choices"][0]["delta"].get("content") or "" for each in events_of(answer.content)[:-1]
    )


@pytest.mark.parametrize("silence", [SILENT, NO_TOKEN])
def test_production_stack_749_a_silent_worker_is_taken_out_long_before_the_timeout(
    start_upstream: StartUpstream,
    start_gateway: StartGateway,
    wait_until: WaitUntil,
    valkey_url: str,
    silence: Script,
) -> None:
    silent, healthy = start_upstream(), start_upstream()
    silent.plays(silence)
    healthy.plays(STREAM)
    gateway = start_gateway(silent.url, healthy.url, breaker_cooldown_s=60.0, **SOON)
    first = stream(gateway)
    assert [text_of(each) for each in (first, *(stream(gateway) for _ in range(4)))] == ["ok"] * 5
    assert (len(silent.received), len(healthy.received)) == (1, 5)
    wait_until(lambda: silent.num_left == 1)
    taken_out, serving = gateway.deps.pool.workers
    assert (taken_out.breaker.state, serving.breaker.state) == ("open", "closed")
    assert (taken_out.num_in_flight, serving.num_in_flight) == (0, 0)
    assert gateway.deps.metrics.hedges.labels("second")._value.get() == 1
    with Redis.from_url(valkey_url) as redis:
        key = f"ng:turn:{first.headers['x-gravity-turn-id']}"
        record = orjson.loads(wait_until(lambda: redis.get(key)))
    assert (record["worker"], record["num_attempts"]) == (healthy.url, 2)


def test_a_worker_that_begins_after_all_answers_and_the_second_is_closed(
    start_upstream: StartUpstream, start_gateway: StartGateway, wait_until: WaitUntil
) -> None:
    slow, silent = start_upstream(), start_upstream()
    slow.plays(Script([Pause(0.5), events(chunk("slow"), chunk(finish="stop"))]))
    silent.plays(SILENT)
    gateway = start_gateway(slow.url, silent.url, **SOON)
    assert text_of(stream(gateway)) == "slow"
    wait_until(lambda: silent.num_left == 1)
    assert [worker.breaker.state for worker in gateway.deps.pool.workers] == ["closed", "closed"]
    assert [worker.num_in_flight for worker in gateway.deps.pool.workers] == [0, 0]


def test_a_worker_that_answers_others_meanwhile_is_slow_not_silent(
    start_upstream: StartUpstream, start_gateway: StartGateway, wait_until: WaitUntil
) -> None:
    busy, other = start_upstream(), start_upstream()
    busy.plays(SILENT)
    other.plays(STREAM)
    gateway = start_gateway(busy.url, other.url, **SOON)
    worker = gateway.deps.pool.workers[0]
    other.hold()
    answers: list[httpx.Response] = []
    asking = Thread(target=lambda: answers.append(stream(gateway)))
    asking.start()
    wait_until(lambda: other.num_open == 1)  # both have it now
    worker.num_begun += 1  # as an answer to somebody else would
    other.release()
    asking.join(10.0)
    assert text_of(answers[0]) == "ok"
    assert worker.breaker.state == "closed"
    assert gateway.deps.metrics.hedges.labels("second")._value.get() == 1


def test_one_worker_alone_is_waited_for(start_upstream: StartUpstream, start_gateway: StartGateway) -> None:
    slow = start_upstream()
    slow.plays(Script([Pause(0.4), events(chunk("late"), chunk(finish="stop"))]))
    gateway = start_gateway(slow.url, **SOON)
    assert text_of(stream(gateway)) == "late"
    assert len(slow.received) == 1


def test_where_both_fail_the_third_is_asked(
    start_upstream: StartUpstream, start_gateway: StartGateway
) -> None:
    dying, failing, healthy = start_upstream(), start_upstream(), start_upstream()
    dying.plays(Script([Pause(0.4)]))
    failing.plays(Script([b"{}"], status=500, content_type="application/json"))
    healthy.plays(STREAM)
    gateway = start_gateway(dying.url, failing.url, healthy.url, **SOON)
    assert text_of(stream(gateway)) == "ok"
    assert [len(each.received) for each in (dying, failing, healthy)] == [1, 1, 1]


def test_a_client_that_leaves_during_a_race_stops_both(
    start_upstream: StartUpstream, start_gateway: StartGateway, wait_until: WaitUntil
) -> None:
    one, other = start_upstream(), start_upstream()
    one.plays(SILENT)
    other.plays(SILENT)
    gateway = start_gateway(one.url, other.url, **SOON)
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(gateway.url + CHAT, json=PLAIN[CHAT] | {"stream": True}, timeout=0.8)
    wait_until(lambda: (one.num_left, other.num_left) == (1, 1), timeout_s=0.5)
    assert [worker.num_in_flight for worker in gateway.deps.pool.workers] == [0, 0]
    assert [worker.breaker.state for worker in gateway.deps.pool.workers] == ["closed", "closed"]


def test_a_whole_answer_is_raced_only_once_it_is_known_what_is_usual(
    start_upstream: StartUpstream, start_gateway: StartGateway
) -> None:
    worker, other = start_upstream(), start_upstream()
    ok = Script([whole("ok")], content_type="application/json")
    worker.plays(ok)
    other.plays(ok)
    gateway = start_gateway(worker.url, other.url, **SOON)
    with httpx.Client(base_url=gateway.url, timeout=30.0) as client:
        for _ in range(40):
            assert client.post(CHAT, json=PLAIN[CHAT]).status_code == 200
        worker.plays(SILENT)
        answers = [client.post(CHAT, json=PLAIN[CHAT]) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert gateway.deps.pool.workers[0].breaker.state == "open"


async def test_a_client_that_leaves_while_the_loser_is_being_closed_leaves_nothing_behind() -> None:
    urls = ("http://10.0.0.1:1", "http://10.0.0.2:1")
    pool = Pool.open(GatewaySettings(workers=urls), monotonic)
    closed: list[str] = []
    is_closing = asyncio.Event()

    async def begin(turn: Turn, worker: Worker) -> Begun:
        if worker is pool.workers[1]:
            return Begun(turn, cast(Reply, SimpleNamespace(close=lambda: closed.append(worker.name))), None)
        try:
            await asyncio.Event().wait()
        finally:
            is_closing.set()
            await asyncio.sleep(0.05)  # as the end of a connection may take
        raise AssertionError

    def attempt(worker: Worker) -> Attempt:
        place = Place(worker, worker.take(0))
        return Attempt(cast(Turn, SimpleNamespace(id="t")), place, RequestSize("m", True, 9), monotonic)

    deps = cast("Deps", SimpleNamespace(pool=pool, metrics=Metrics()))
    race = Race(begin, lambda: attempt(pool.workers[1]), deps)
    turn = asyncio.create_task(race.first_to_begin(attempt(pool.workers[0]), 0.01))
    await is_closing.wait()
    turn.cancel()
    await asyncio.wait([turn])
    assert turn.cancelled()
    assert closed == [urls[1]]
    assert [worker.num_in_flight for worker in pool.workers] == [0, 0]
    await pool.close()
