"""The real worker taken for an opaque one: what is estimated of each step, beside what it measured itself."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from redis import Redis
from redis.asyncio import Redis as AsyncRedis

from gateway.trace.steps import ChoiceSteps, wait_for_steps
from tests.conftest import RunningProcess, WaitUntil
from tests.servers.front import Front
from tests.servers.gateway import CHAT, COMPLETIONS, Gateway, events_of, serving
from tests.servers.upstream import Loop
from worker.thermo.entropic_time import entropic_time

VOCABULARY_SIZE = 49_152
ROUNDING_NATS = 1e-4
"""The worker computes in float32, and writes its log-probabilities as such."""


@dataclass(frozen=True, slots=True)
class Hidden:
    """A gateway, the front before the real worker, and the model's name."""

    gateway: Gateway
    front: Front
    model: str
    redis_url: str

    def ask(self, path: str, **body: Any) -> httpx.Response:
        plain: dict[str, Any] = {"model": self.model, "max_tokens": 10, "temperature": 1.0, "seed": 5}
        asked = {"messages": [{"role": "user", "content": "Name a harbour town."}]}
        plain |= asked if path == CHAT else {"prompt": "A harbour town is"}
        response = httpx.post(self.gateway.url + path, json=plain | body, timeout=60.0)
        assert response.status_code == 200, response.text
        return response

    def steps(self, turn_id: str, num_choices: int = 1) -> tuple[ChoiceSteps, ...]:
        async def read() -> tuple[ChoiceSteps, ...]:
            async with AsyncRedis.from_url(self.redis_url) as redis:
                return await wait_for_steps(redis, turn_id, num_choices)

        return asyncio.run(read())


@pytest.fixture(scope="module")
def shared_hidden(
    server_loop: Loop, worker_server: RunningProcess, valkey_url: str, wait_until: WaitUntil
) -> Iterator[Hidden]:
    model = httpx.get(worker_server.url + "/v1/models").json()["data"][0]["id"]
    front = Front(server_loop, worker_server.url, "opaque")
    front.start()
    sizes = {model: VOCABULARY_SIZE}
    with serving(front.url, redis_url=valkey_url, opaque_vocabulary_sizes=sizes) as gateway:
        wait_until(lambda: gateway.deps.pool.has_ready_worker)
        assert gateway.deps.pool.workers[0].level == "opaque"
        yield Hidden(gateway, front, model, valkey_url)
    front.stop()


@pytest.fixture
def hidden(shared_hidden: Hidden) -> Hidden:
    shared_hidden.front.has_tokenizer = True
    return shared_hidden


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("is_streaming", [True, False])
def test_every_steps_true_entropy_lies_within_its_bounds(
    hidden: Hidden, path: str, is_streaming: bool, wait_until: WaitUntil
) -> None:
    response = hidden.ask(path, stream=is_streaming)
    turn_id = response.headers["x-gravity-turn-id"]
    (guessed,) = hidden.steps(turn_id)
    (exact,) = hidden.steps(hidden.front.trace_id(len(hidden.front.received) - 1))
    assert len(guessed.steps) == len(exact.steps) > 3
    assert guessed.finish_reason == exact.finish_reason
    for ours, theirs in zip(guessed.steps, exact.steps, strict=True):
        assert abs(ours.entropy_nats - theirs.entropy_nats) <= ours.entropy_half_width_nats + ROUNDING_NATS
        assert ours.logprob == pytest.approx(theirs.logprob, abs=ROUNDING_NATS)
        assert ours.p_max == pytest.approx(theirs.p_max, abs=ROUNDING_NATS)
        assert theirs.entropy_half_width_nats == 0.0
    assert max(step.entropy_half_width_nats for step in guessed.steps) > 0.1

    told = _gravity_of(response, is_streaming)
    tau, tau_width = told["entropic_time_nats"], told["entropic_time_half_width_nats"]
    mean, mean_width = told["mean_entropy_nats"], told["mean_entropy_half_width_nats"]
    measured = [step.entropy_nats for step in exact.steps]
    assert told["is_estimated"] is True
    assert abs(tau - entropic_time(measured)) <= tau_width + 10 * ROUNDING_NATS
    assert abs(mean - sum(measured) / len(measured)) <= mean_width + ROUNDING_NATS
    gravity = sum(step.gravity for step in exact.steps) / len(measured)
    assert abs(told["mean_gravity"] - gravity) <= told["mean_gravity_half_width"] + ROUNDING_NATS

    with Redis.from_url(hidden.redis_url) as redis:
        record = wait_until(lambda: redis.get(f"ng:turn:{turn_id}"))
    outcome = orjson.loads(record)["outcome"]
    assert outcome["is_estimated"] is True
    assert outcome["entropic_time_half_width_nats"] == pytest.approx(tau_width)


def _gravity_of(response: httpx.Response, is_streaming: bool) -> dict[str, Any]:
    if not is_streaming:
        return dict(response.json()["gravity"])
    told: dict[str, Any] = {}
    for event in events_of(response.content):
        told |= event.get("gravity", {}) if isinstance(event, dict) else {}
    return told


def test_each_of_two_choices_has_its_own_steps(hidden: Hidden) -> None:
    response = hidden.ask(CHAT, n=2, max_tokens=4)
    guessed = hidden.steps(response.headers["x-gravity-turn-id"], 2)
    exact = hidden.steps(hidden.front.trace_id(len(hidden.front.received) - 1), 2)
    assert [len(choice.steps) for choice in guessed] == [len(choice.steps) for choice in exact]
    for ours, theirs in zip(guessed[1].steps, exact[1].steps, strict=True):
        assert abs(ours.entropy_nats - theirs.entropy_nats) <= ours.entropy_half_width_nats + ROUNDING_NATS


@pytest.mark.parametrize("is_streaming", [True, False])
def test_a_client_that_asked_for_no_logprobs_gets_none_and_others_their_number(
    hidden: Hidden, is_streaming: bool
) -> None:
    without = hidden.ask(CHAT, stream=is_streaming, max_tokens=3)
    with_two = hidden.ask(CHAT, stream=is_streaming, max_tokens=3, logprobs=True, top_logprobs=2)
    assert [body["top_logprobs"] for body in hidden.front.received[-2:]] == [20, 20]
    assert all(choice["logprobs"] is None for choice in _choices(without, is_streaming))
    shown = [choice["logprobs"] for choice in _choices(with_two, is_streaming) if choice.get("logprobs")]
    tokens = [token for each in shown for token in each["content"]]
    assert len(tokens) == 3
    assert all(len(token["top_logprobs"]) == 2 and token["bytes"] for token in tokens)


def _choices(response: httpx.Response, is_streaming: bool) -> list[dict[str, Any]]:
    answers = events_of(response.content)[:-1] if is_streaming else [response.json()]
    return [choice for answer in answers for choice in answer["choices"]]


def test_the_words_of_a_task_lean_the_answer_by_the_workers_own_tokens(
    hidden: Hidden, tokenizer: Any
) -> None:
    gravity = {"core_semantics": ["harbour", "ferry"], "penalize": ["mountain"], "gravity_strength": 2.0}
    hidden.ask(CHAT, gravity=gravity, logit_bias={"5": -1.0})
    bias = hidden.front.received[-1]["logit_bias"]
    weights = {"ferry": 0.4, " ferry": 0.4, "Ferry": 0.4, "mountain": -2.0, " mountains": -2.0}
    for text, weight in weights.items():
        assert bias[str(tokenizer.encode(text, add_special_tokens=False)[0])] == pytest.approx(weight), text
    assert bias["5"] == -1.0
    assert not {str(id_) for id_ in tokenizer.all_special_ids} & bias.keys()


def test_without_a_tokenizer_the_words_are_not_passed_on_and_the_answer_says_so(
    server_loop: Loop,
    worker_server: RunningProcess,
    valkey_url: str,
    model_path: Path,
    tokenizer: Any,
    wait_until: WaitUntil,
) -> None:
    model = httpx.get(worker_server.url + "/v1/models").json()["data"][0]["id"]
    front = Front(server_loop, worker_server.url, "mute")
    front.has_tokenizer = False
    front.start()
    gravity = {"core_semantics": ["ferry"], "gravity_strength": 1.0}
    with serving(front.url, redis_url=valkey_url) as gateway:
        wait_until(lambda: gateway.deps.pool.has_ready_worker)
        answer = Hidden(gateway, front, model, valkey_url).ask(CHAT, gravity=gravity, max_tokens=1)
        assert "logit_bias" not in front.received[-1]
        assert any("NG_OPAQUE_TOKENIZERS" in warning for warning in answer.json()["gravity"]["warnings"])
    named = {model: str(model_path)}
    with serving(front.url, redis_url=valkey_url, opaque_tokenizers=named) as gateway:
        wait_until(lambda: gateway.deps.pool.has_ready_worker)
        Hidden(gateway, front, model, valkey_url).ask(CHAT, gravity=gravity, max_tokens=1)
        ferry = str(tokenizer.encode(" ferry", add_special_tokens=False)[0])
        assert front.received[-1]["logit_bias"][ferry] == pytest.approx(0.2)
    front.stop()
