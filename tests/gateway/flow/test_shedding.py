"""What is given up when the queue fills, in which order, and how it shows."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from pydantic import ValidationError

from gateway.errors import QueueFull
from gateway.flow.admission import Admission, QueueSettings
from gateway.flow.shedding import Shedding, ShedSettings
from gateway.pool.registry import Pool
from gateway.settings import GatewaySettings
from gateway.store.document import ContextSection
from gateway.telemetry.metrics import Metrics
from tests.gateway.flow.conftest import MakeTurn
from tests.servers.gateway import CHAT, PLAIN, Gateway, StartGateway
from tests.servers.upstream import Script, StartUpstream, Upstream, whole

WaitUntil = Callable[..., Any]
OK = Script([whole("ok")], content_type="application/json")


class Queue(Admission):
    """A queue whose fill and least priority the test says."""

    fill = 0.0
    least_priority = None

    def __init__(self) -> None:
        pool = Pool((), lambda url: pytest.fail(url), None, probe_interval_s=1.0, probe_timeout_s=1.0)  # type: ignore[arg-type]
        super().__init__(pool, QueueSettings(10, 1.0, 1.0), Metrics(), lambda: 0.0)


def shedding_at(fill: float, queue: Queue | None = None) -> Shedding:
    queue = queue or Queue()
    shedding = Shedding(queue, ShedSettings((0.25, 0.5, 0.75, 0.9), 0.5, 2_048), Metrics())
    queue.fill = fill
    queue.on_change()
    return shedding


def test_steps_come_in_order_and_go_only_well_below_where_they_came() -> None:
    queue = Queue()
    shedding = shedding_at(0.0, queue)
    levels = []
    for fill in (0.2, 0.25, 0.74, 1.0, 0.8, 0.75, 0.65, 0.6, 0.4, 0.35, 0.2, 0.1, 0.0):
        queue.fill = fill
        queue.on_change()
        levels.append(shedding.level)
    assert levels == [0, 1, 2, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0]
    assert shedding_at(0.8).steps == ("budget", "shadow", "choices")


def test_a_tasks_budget_is_halved_and_one_without_gets_one(make_turn: MakeTurn) -> None:
    shedding = shedding_at(0.3)
    turn = shedding.marked(make_turn())
    assert shedding.context_for(turn, ContextSection(token_budget=500)).token_budget == 250
    assert shedding.context_for(turn, ContextSection(token_budget=20)).token_budget == 16
    assert shedding.context_for(turn, ContextSection()).token_budget == 2_048
    calm = ContextSection()
    assert shedding.context_for(make_turn(), calm) is calm


def test_refused_are_several_choices_first_and_then_the_least_urgent(make_turn: MakeTurn) -> None:
    queue = Queue()
    several = make_turn(body={"n": 2})
    for fill in (0.0, 0.7):
        calm = shedding_at(fill)
        calm.require_service(calm.marked(several))
    short = shedding_at(0.8)
    short.require_service(short.marked(make_turn()))
    with pytest.raises(QueueFull) as refused:
        short.require_service(short.marked(several))
    assert refused.value.param == "n"
    assert refused.value.retry_after_s is not None
    queue.least_priority = 1  # type: ignore[assignment]
    nearly_full = shedding_at(0.95, queue)
    nearly_full.require_service(nearly_full.marked(make_turn(priority=2)))
    with pytest.raises(QueueFull):
        nearly_full.require_service(nearly_full.marked(make_turn(priority=1)))


def test_thresholds_must_rise_and_may_be_none() -> None:
    assert GatewaySettings(shed_at="").shed_at == ()
    assert GatewaySettings(shed_at="0.5,0.6").shed_at == (0.5, 0.6)
    for wrong in ("0.5,0.5", "0.6,0.5", "2", "0.1,0.2,0.3,0.4,0.5"):
        with pytest.raises(ValidationError):
            GatewaySettings(shed_at=wrong)


def post(gateway: Gateway, **body: Any) -> httpx.Response:
    return httpx.post(gateway.url + CHAT, json=PLAIN[CHAT] | body, timeout=30.0)


def test_each_step_shows_in_the_answer_in_health_and_in_the_metrics(
    upstream: Upstream, start_gateway: StartGateway, wait_until: WaitUntil
) -> None:
    upstream.plays(OK)
    gateway = start_gateway(upstream.url, worker_concurrency=1, queue_limit=4, shed_token_budget=16)
    documents = ["The ferry runs on two fuel cells.", "Its crew " + "sleeps ashore every night " * 10]
    upstream.hold()
    answers: list[httpx.Response] = []
    asking = []
    for number in range(4):
        body = {"documents": documents} if number == 3 else {}
        asking.append(threading.Thread(target=lambda b=body: answers.append(post(gateway, **b))))
        asking[-1].start()
        wait_until(lambda: upstream.num_open == 1, timeout_s=10.0)
        wait_until(lambda n=number: gateway.deps.admission.num_waiting == n, timeout_s=20.0)
    refused = post(gateway, n=2)
    assert (refused.status_code, refused.json()["error"]["param"]) == (429, "n")
    assert refused.headers["x-gravity-shed"] == "budget,shadow,choices"
    health = httpx.get(gateway.url + "/health").json()
    assert health["shedding"] == {"level": 3, "steps": ["budget", "shadow", "choices"]}
    assert health["queue"] == {"waiting": 3, "fill": 0.75}
    upstream.release()
    for each in asking:
        each.join(20.0)
    shed = {answer.headers.get("x-gravity-shed"): answer.json()["gravity"] for answer in answers}
    assert shed.keys() == {None, "budget", "budget,shadow"}
    assert shed[None]["shed"] == []
    pruned = shed["budget,shadow"]
    assert pruned["shed"] == ["budget", "shadow"]
    assert [verdict["kept"] for verdict in pruned["documents"]] == [True, False]
    assert pruned["tokens_after"] <= 16
    metrics = httpx.get(gateway.url + "/metrics").text
    assert 'gravity_shed_total{step="budget"} 1.0' in metrics
    assert 'gravity_shed_total{step="choices"} 1.0' in metrics
    assert "gravity_shed_level 0.0" in metrics
    assert "x-gravity-shed" not in post(gateway).headers


def test_without_a_queue_nothing_is_shed(start_upstream: StartUpstream, start_gateway: StartGateway) -> None:
    upstream = start_upstream()
    upstream.plays(OK)
    gateway = start_gateway(upstream.url)
    answer = post(gateway, n=2)
    assert (answer.status_code, answer.headers.get("x-gravity-shed")) == (200, None)
