"""Shadow turns at real gateways: both answers are kept, and the client never waits for the second."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import orjson
import pytest
from redis import Redis

from gateway.flow.assign import choose_lane
from gateway.flow.deps import Deps
from gateway.flow.drain import Drain
from gateway.flow.shadow import Shadows, is_drawn, shadow_of
from gateway.flow.turn import Assignment, Turn
from gateway.outcomes.entry import TurnOutcome
from gateway.store.document import ExperimentDocument
from tests.gateway.flow.conftest import MakeTurn
from tests.gateway.flow.experiments import Trial
from tests.servers.gateway import CHAT, PLAIN, Gateway, StartGateway
from tests.servers.upstream import Hang, Script, Upstream, chunk, events, whole

WaitUntil = Callable[..., Any]
TREATED, CONTROLLED = "bob", "fay"
"""blake2b of the arm's seed puts them at 0.34 and 0.85."""
LOADING_S = 60.0
"""The first outcome waits until the libraries of the encoder are imported."""
HANGING = Script([events(chunk("a"), done=False), Hang()])


@pytest.fixture
def redis(valkey_url: str) -> Iterator[Redis]:
    with Redis.from_url(valkey_url) as client:
        yield client


@pytest.fixture
def trial(tmp_path: Path, redis: Redis) -> Trial:
    """An experiment whose treatment is followed by a shadow, always."""
    return Trial.begin(tmp_path / "configs", redis, shadow_share=1.0)


@pytest.fixture
def start(start_gateway: StartGateway, trial: Trial) -> Callable[..., Gateway]:
    def begin(*workers: str, **settings: Any) -> Gateway:
        return start_gateway(*workers, config_dir=trial.folder, encoder_model="/nowhere", **settings)

    return begin


def ask(gateway: Gateway, user: str = TREATED, **body: Any) -> httpx.Response:
    answer = httpx.post(gateway.url + CHAT, json=PLAIN[CHAT] | {"user": user} | body, timeout=30.0)
    assert answer.status_code == 200, answer.text
    return answer


def _outcomes(trial: Trial, count: int) -> list[TurnOutcome] | None:
    found = trial.outcomes()
    return found if len(found) == count else None


def counted(gateway: Gateway, name: str) -> float:
    lines = httpx.get(gateway.url + "/metrics").text.splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


def left_out(gateway: Gateway, reason: str) -> float:
    return counted(gateway, f'gravity_shadows_left_out_total{{reason="{reason}"}}')


def test_both_answers_are_kept_and_linked(
    upstream: Upstream, start: Callable[..., Gateway], trial: Trial, redis: Redis, wait_until: WaitUntil
) -> None:
    plain = {"content_type": "application/json"}
    upstream.plays(Script([whole("steered")], **plain), Script([whole("plain words")], **plain))  # type: ignore[arg-type]
    gateway = start(upstream.url)
    answer = ask(gateway)
    turn_id = answer.headers["x-gravity-turn-id"]
    assert answer.json()["choices"][0]["message"]["content"] == "steered"
    outcomes = wait_until(lambda: _outcomes(trial, 2), timeout_s=LOADING_S)
    first, shadow = outcomes
    assert (first.turn_id, first.arm, first.shadow_of) == (turn_id, "treatment", "")
    assert (shadow.unit, shadow.arm, shadow.shadow_of) == (first.unit, "control", turn_id)
    assert (first.values["answer_words"], shadow.values["answer_words"]) == (1.0, 2.0)
    assert len(trial.exposures()) == 1
    records = [orjson.loads(redis.get(f"ng:turn:{each.turn_id}") or b"{}") for each in outcomes]
    assert [record["outcome"]["text"] for record in records] == ["steered", "plain words"]
    assert [record["shadow_of"] for record in records] == ["", turn_id]
    assert [record["body"] for record in records] == [PLAIN[CHAT] | {"user": TREATED}] * 2
    assert (records[1]["assignment"]["lane"], records[1]["assignment"]["reason"]) == ("control", "shadow")
    assert not records[1]["assignment"]["pruning"]
    assert counted(gateway, "gravity_turns_total") == 1
    assert counted(gateway, 'gravity_shadows_total{outcome="ok"}') == 1


def test_only_turns_of_the_other_arms_have_a_shadow(
    upstream: Upstream, start: Callable[..., Gateway], trial: Trial, wait_until: WaitUntil
) -> None:
    upstream.plays(Script([whole("ok")], content_type="application/json"))
    gateway = start(upstream.url)
    ask(gateway, CONTROLLED)
    failed = httpx.post(gateway.url + CHAT, json=PLAIN[CHAT] | {"user": TREATED, "model": "no"})
    assert failed.status_code == 404
    ask(gateway)
    wait_until(lambda: _outcomes(trial, 4), timeout_s=LOADING_S)
    assert [bool(each.shadow_of) for each in trial.outcomes()].count(True) == 1
    assert len(upstream.received) == 3


@pytest.mark.parametrize("is_streaming", [True, False])
def test_the_client_has_its_whole_answer_before_a_shadow_begins(
    upstream: Upstream, start: Callable[..., Gateway], wait_until: WaitUntil, is_streaming: bool
) -> None:
    first = events(chunk("ok"), chunk(finish="stop")) if is_streaming else whole("ok")
    kind = "text/event-stream" if is_streaming else "application/json"
    upstream.plays(Script([first], content_type=kind), Script(is_silent=True))
    gateway = start(upstream.url)
    started = time.monotonic()
    answer = ask(gateway, stream=is_streaming)
    assert b"ok" in answer.content
    assert time.monotonic() - started < 10.0, "the shadow never ends, the client's turn does"
    wait_until(lambda: len(upstream.received) == 2)
    assert gateway.deps.shadows.num_running == 1


def test_a_shadow_is_left_out_where_no_worker_is_idle_or_enough_run_and_that_is_counted(
    upstream: Upstream, start: Callable[..., Gateway], wait_until: WaitUntil
) -> None:
    once = events(chunk("ok"), chunk(finish="stop"))
    upstream.plays(once, HANGING, once, once)
    gateway = start(upstream.url, max_shadows=1)
    ask(gateway, stream=True)
    wait_until(lambda: len(upstream.received) == 2)
    ask(gateway, stream=True)
    wait_until(lambda: left_out(gateway, "limit") == 1)
    assert gateway.deps.shadows.num_running == 1


def test_a_shadow_is_left_out_where_the_only_worker_is_busy(
    upstream: Upstream, start: Callable[..., Gateway], wait_until: WaitUntil
) -> None:
    once = events(chunk("ok"), chunk(finish="stop"))
    upstream.plays(HANGING, once)
    gateway = start(upstream.url)
    body = PLAIN[CHAT] | {"user": CONTROLLED, "stream": True}
    with httpx.stream("POST", gateway.url + CHAT, json=body, timeout=30.0) as client:
        arriving = client.iter_bytes()
        next(arriving)
        ask(gateway, stream=True)
        wait_until(lambda: left_out(gateway, "busy") == 1)
    assert len(upstream.received) == 2


def test_a_shadow_ends_when_the_gateway_begins_to_leave_and_none_is_begun(
    upstream: Upstream, start: Callable[..., Gateway], trial: Trial, wait_until: WaitUntil
) -> None:
    once = events(chunk("ok"), chunk(finish="stop"))
    upstream.plays(once, HANGING, once)
    gateway = start(upstream.url)
    ask(gateway, stream=True)
    wait_until(lambda: len(upstream.received) == 2)
    loop = gateway.deps.shadows._running.copy().pop().get_loop()
    loop.call_soon_threadsafe(gateway.deps.drain.begin)
    wait_until(lambda: upstream.num_left == 1 and gateway.deps.drain.num_open == 0)
    assert counted(gateway, 'gravity_shadows_total{outcome="cancelled"}') == 1
    ask(gateway, stream=True)
    wait_until(lambda: left_out(gateway, "draining") == 1)


def experiment(**changes: Any) -> ExperimentDocument:
    arms = [{"name": "treatment", "start": 0.0}, {"name": "plain", "start": 0.5, "task": "other"}]
    fields = {"id": "gain", "version": 3, "enrol_seed": "a", "arm_seed": "b", "arms": arms}
    return ExperimentDocument.model_validate({**fields, "control_arm": "plain", **changes})


def test_the_share_is_drawn_by_the_turns_id(make_turn: MakeTurn) -> None:
    document = experiment(shadow_share=0.2)
    lane = Assignment(lane="treatment", experiment="gain", experiment_version=3, reason="split")
    turns = [make_turn(id=f"turn-{number}", assignment=lane) for number in range(5_000)]
    drawn = [turn.id for turn in turns if is_drawn(turn, document)]
    # 5,000 draws at 0.2: the standard deviation is 28.
    assert 1_000 - 4 * 28 < len(drawn) < 1_000 + 4 * 28
    assert drawn == [turn.id for turn in turns if is_drawn(turn, document)]
    assert not any(is_drawn(turn, experiment()) for turn in turns)
    control = replace(lane, lane="plain")
    assert not any(
        is_drawn(replace(turn, assignment=control), experiment(shadow_share=1.0)) for turn in turns
    )


def test_a_shadow_is_the_request_as_it_came_under_the_control(make_turn: MakeTurn) -> None:
    document = experiment(shadow_share=1.0)
    turn = make_turn(user="ada", gravity_override={"gravity_strength": 2.0}, question="why?")
    assignment, _ = choose_lane(turn, document)
    served = replace(turn, assignment=assignment, upstream_body={"made": "by shape"}, worker="w", bucket=2)
    tasks = {name: SimpleNamespace(task_type=name) for name in ("default", "other")}
    deps = cast(
        Deps,
        SimpleNamespace(
            config=SimpleNamespace(snapshot=SimpleNamespace(tasks=tasks, sha="now")),
            new_id=lambda: "turn-2",
            clock=lambda: 5.0,
        ),
    )
    shadow = shadow_of(served, document, deps)
    assert shadow == replace(
        turn,
        id="turn-2",
        received_at=5.0,
        shadow_of="turn-1",
        config_sha="now",
        task=cast(Any, tasks["other"]),
        assignment=Assignment("plain", "gain", 3, assignment.unit, True, "shadow"),
    )


async def test_no_shadow_is_begun_after_a_publish_nor_while_the_queue_fills(make_turn: MakeTurn) -> None:
    served: list[Turn] = []
    left_out_for: list[str] = []

    async def serve(turn: Turn, deps: Deps, emit: Any) -> Turn:
        served.append(turn)
        return turn

    document = experiment(shadow_share=1.0)
    shed: list[str] = []
    shedding = SimpleNamespace(steps=(), count=shed.append)
    snapshot = SimpleNamespace(sha="abc", experiments=(document,), tasks={"other": None, "default": None})
    deps = cast(
        Deps,
        SimpleNamespace(
            config=SimpleNamespace(snapshot=snapshot),
            pool=SimpleNamespace(has_idle_worker=lambda model: True),
            drain=Drain(),
            shedding=shedding,
            new_id=lambda: "turn-2",
            clock=lambda: 5.0,
            metrics=SimpleNamespace(
                shadows_left_out=SimpleNamespace(
                    labels=lambda reason: SimpleNamespace(inc=lambda: left_out_for.append(reason))
                )
            ),
        ),
    )
    lane = Assignment(lane="treatment", experiment="gain", experiment_version=3, reason="split")
    shadows = Shadows(serve, 2)
    shadows.follow(make_turn(assignment=lane, config_sha="older"), deps)
    shedding.steps = ("budget", "shadow")  # the control is the same, there is too little
    shadows.follow(make_turn(assignment=lane, config_sha="abc"), deps)
    assert left_out_for == ["changed", "shed"]
    assert shed == ["shadow"]
    assert served == []
    await shadows.close()
