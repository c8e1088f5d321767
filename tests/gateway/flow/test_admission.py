"""Places at workers, the queue before them, and what those hear who get none."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from time import monotonic
from typing import Any

import httpx
import pytest

from gateway.errors import NoWorkers, QueueFull, UpstreamError
from gateway.flow.admission import Admission, QueueSettings
from gateway.flow.attempt import Place
from gateway.flow.line import Wanted
from gateway.pool.capabilities import Capabilities
from gateway.pool.registry import Pool
from gateway.settings import GatewaySettings
from gateway.telemetry.metrics import Metrics
from tests.servers.gateway import CHAT, PLAIN, Gateway, StartGateway
from tests.servers.upstream import Script, StartUpstream, Upstream, whole

WaitUntil = Callable[..., Any]
OK = Script([whole("ok")], content_type="application/json")
URL = "http://10.0.0.1:8081"


@pytest.fixture
async def pool() -> AsyncIterator[Pool]:
    """One worker for two turns at once, never asked anything."""
    opened = Pool.open(GatewaySettings(workers=(URL,), worker_concurrency=2), monotonic)
    opened.workers[0].answered(Capabilities("native", {"m": None}))
    yield opened
    await opened.close()


def admission_of(pool: Pool, *, limit: int = 3, timeout_s: float = 30.0) -> Admission:
    return Admission(pool, QueueSettings(limit, timeout_s, ageing_s=10.0), Metrics(), monotonic)


def wanted(priority: int = 0, bucket: int = 0) -> Wanted:
    return Wanted("m", bucket, priority, monotonic())


async def waiting(admission: Admission, *all_wanted: Wanted) -> list[asyncio.Task[Place]]:
    """Begin to wait, one after the other."""
    tasks = []
    for each in all_wanted:
        tasks.append(asyncio.create_task(admission.place(each)))
        await asyncio.sleep(0)
    return tasks


async def test_a_turn_waits_where_all_are_full_and_gets_the_first_free_place(pool: Pool) -> None:
    admission = admission_of(pool)
    places = [await admission.place(wanted()) for _ in range(2)]
    [low, high] = await waiting(admission, wanted(0), wanted(1))
    assert (admission.num_waiting, pool.workers[0].num_in_flight) == (2, 2)
    places[0].lease.end("success")
    await asyncio.wait([high])
    assert not low.done()
    high.result().lease.end("success")
    (await low).lease.end("success")
    places[1].lease.end("success")
    assert (admission.num_waiting, pool.workers[0].num_in_flight) == (0, 0)


async def test_a_full_queue_refuses_and_one_more_urgent_takes_the_last_ones_place(pool: Pool) -> None:
    admission = admission_of(pool, limit=2)
    for _ in range(2):
        await admission.place(wanted())
    first, second = await waiting(admission, wanted(), wanted())
    with pytest.raises(QueueFull) as refused:
        await admission.place(wanted())
    assert refused.value.retry_after_s == 1.0
    [other_bucket, urgent] = await waiting(admission, wanted(bucket=1), wanted(priority=1))
    await asyncio.wait([second])
    assert isinstance(second.exception(), QueueFull)
    assert [task.done() for task in (first, other_bucket, urgent)] == [False] * 3
    assert admission.fill == 1.0
    for task in (first, other_bucket, urgent):
        task.cancel()
    await asyncio.wait([first, other_bucket, urgent])
    assert (admission.num_waiting, admission.fill) == (0, 0.0)


async def test_the_deadline_ends_the_waiting_with_a_429(pool: Pool) -> None:
    admission = admission_of(pool, timeout_s=0.05)
    for _ in range(2):
        await admission.place(wanted())
    with pytest.raises(QueueFull):
        await admission.place(wanted())
    assert admission.num_waiting == 0


async def test_a_deadline_that_will_surely_be_missed_is_told_at_once(pool: Pool) -> None:
    now_s = 0.0
    admission = Admission(pool, QueueSettings(50, 10.0, 10.0), Metrics(), lambda: now_s)
    for _ in range(8):  # one end in five seconds
        (await admission.place(wanted())).lease.end("success")
        now_s += 5.0
    held = [await admission.place(Wanted("m", 0, 0, now_s)) for _ in range(2)]
    tasks = await waiting(admission, *(Wanted("m", 0, 0, now_s) for _ in range(4)))
    with pytest.raises(QueueFull) as refused:  # the fifth would wait 25 s, which is over twice 10 s
        await admission.place(Wanted("m", 0, 0, now_s))
    assert refused.value.retry_after_s == pytest.approx(25.0)
    for place in held:
        place.lease.end("success")
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def test_who_leaves_in_the_moment_of_getting_a_place_gives_it_back(pool: Pool) -> None:
    admission = admission_of(pool)
    held = [await admission.place(wanted()) for _ in range(2)]
    leaving, next_ = await waiting(admission, wanted(), wanted())
    held[0].lease.end("success")  # grants the first waiter its place
    leaving.cancel()
    await asyncio.wait([leaving, next_])
    assert leaving.cancelled()
    next_.result().lease.end("success")
    held[1].lease.end("success")
    assert pool.workers[0].num_in_flight == 0


async def test_llm_d_router_1735_those_who_wait_hear_503_once_nobody_can_serve(pool: Pool) -> None:
    admission = admission_of(pool)
    held = [await admission.place(wanted()) for _ in range(2)]
    tasks = await waiting(admission, wanted(), wanted())
    pool.workers[0].failed_probe(UpstreamError())
    held[0].lease.end("failure")
    await asyncio.wait(tasks)
    assert [type(task.exception()) for task in tasks] == [NoWorkers, NoWorkers]
    with pytest.raises(NoWorkers):
        await admission.place(wanted())


async def test_without_a_concurrency_nobody_waits() -> None:
    pool = Pool.open(GatewaySettings(workers=(URL,)), monotonic)
    pool.workers[0].answered(Capabilities("native", {"m": None}))
    admission = admission_of(pool)
    for _ in range(100):
        await admission.place(wanted())
    assert pool.workers[0].num_in_flight == 100
    await pool.close()


def post(gateway: Gateway, timeout_s: float = 30.0) -> httpx.Response:
    return httpx.post(gateway.url + CHAT, json=PLAIN[CHAT], timeout=timeout_s)


def test_over_http_turns_wait_are_refused_and_are_served(
    upstream: Upstream, start_gateway: StartGateway, wait_until: WaitUntil
) -> None:
    upstream.plays(OK)
    gateway = start_gateway(upstream.url, worker_concurrency=1, queue_limit=1)
    admission = gateway.deps.admission
    upstream.hold()
    statuses: list[int] = []
    asking = [threading.Thread(target=lambda: statuses.append(post(gateway).status_code)) for _ in range(2)]
    for each in asking:
        each.start()
    wait_until(lambda: upstream.num_open == 1 and admission.num_waiting == 1)
    refused = post(gateway)
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "queue_full")
    assert refused.headers["retry-after"] == "1"
    assert "gravity_queue_waiting{" in httpx.get(gateway.url + "/metrics").text
    upstream.release()
    for each in asking:
        each.join(10.0)
    assert statuses == [200, 200]
    assert (len(upstream.received), admission.num_waiting) == (2, 0)


def test_litellm_27955_who_leaves_the_queue_frees_its_place_at_once(
    upstream: Upstream, start_gateway: StartGateway, wait_until: WaitUntil
) -> None:
    upstream.plays(OK)
    gateway = start_gateway(upstream.url, worker_concurrency=1, queue_limit=1)
    upstream.hold()
    statuses: list[int] = []
    asking = threading.Thread(target=lambda: statuses.append(post(gateway).status_code))
    asking.start()
    wait_until(lambda: upstream.num_open == 1)
    for _ in range(3):
        with pytest.raises(httpx.ReadTimeout):
            post(gateway, timeout_s=0.2)
        wait_until(lambda: gateway.deps.admission.num_waiting == 0, timeout_s=0.5)
    upstream.release()
    asking.join(10.0)
    assert statuses == [200]
    assert post(gateway).status_code == 200
    assert len(upstream.received) == 2
    assert gateway.deps.pool.workers[0].num_in_flight == 0


def test_a_retry_waits_for_the_other_worker(
    start_upstream: StartUpstream, start_gateway: StartGateway, wait_until: WaitUntil
) -> None:
    failing, busy = start_upstream(), start_upstream()
    busy.plays(OK)
    failing.plays(Script([b"{}"], status=500, content_type="application/json"))
    gateway = start_gateway(failing.url, busy.url, worker_concurrency=1, queue_limit=5, breaker_failures=100)
    busy.hold()
    statuses: list[int] = []
    asking = [threading.Thread(target=lambda: statuses.append(post(gateway).status_code)) for _ in range(3)]
    for each in asking:
        each.start()
    wait_until(lambda: gateway.deps.admission.num_waiting == 2)
    busy.release()
    for each in asking:
        each.join(10.0)
    assert statuses == [200] * 3
