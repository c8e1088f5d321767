"""The gateway before the real worker: the real model, the real encoder, a real Valkey, real clients."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI

from tests.servers.gateway import CHAT, REPOSITORY, Gateway, events_of

WaitUntil = Callable[..., Any]
QUESTION = "Which ferry goes to the island of Marrow?"
DOCUMENTS: list[Any] = [
    {
        "title": "Ferries",
        "text": "The ferry Osprey goes to the island of Marrow every morning at seven.",
        "page": 4,
    },
    {"title": "Ferries", "text": "The ferry Osprey goes to the island of Marrow every morning at seven."},
    {
        "title": "Baking",
        "text": "Sourdough needs flour, water, salt and a day of patience before it is baked.",
    },
    {
        "id": "harbour",
        "data": {"title": "Harbour", "text": "Tickets for the Osprey are sold in Marrow's harbour office."},
    },
    "Photosynthesis turns light, water and carbon dioxide into sugar and oxygen.",
]


@pytest.fixture(scope="module")
def model(real_gateway: Gateway) -> str:
    """The id under which the worker serves the model."""
    (served,) = httpx.get(real_gateway.url + "/v1/models").json()["data"]
    return str(served["id"])


@pytest.fixture(scope="module")
def client(real_gateway: Gateway) -> Iterator[OpenAI]:
    with OpenAI(base_url=real_gateway.url + "/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def http(real_gateway: Gateway) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=real_gateway.url, timeout=60.0) as client:
        yield client


def asked(text: str = "Say hello.") -> list[Any]:
    return [{"role": "user", "content": text}]


def turn_of(http: httpx.Client, turn_id: str, wait_until: WaitUntil) -> dict[str, Any]:
    """The turn's record and its steps, once all of both are written."""

    def complete() -> dict[str, Any] | None:
        answer = http.get(f"/admin/turns/{turn_id}")
        if answer.status_code != 200:
            return None
        body: dict[str, Any] = answer.json()
        choices = body["choices"]
        return body if choices and all(choice["finish_reason"] for choice in choices) else None

    turn: dict[str, Any] = wait_until(complete)
    return turn


def test_the_openai_sdk_gets_an_answer(client: OpenAI, model: str) -> None:
    answer = client.chat.completions.create(model=model, messages=asked(), max_tokens=8, temperature=0)
    (choice,) = answer.choices
    assert choice.message.role == "assistant"
    assert choice.message.content
    assert choice.finish_reason in ("stop", "length")
    assert answer.model == model
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer.system_fingerprint


def test_a_stream_says_the_same_as_the_whole(client: OpenAI, model: str) -> None:
    whole = client.chat.completions.create(model=model, messages=asked(), max_tokens=12, temperature=0)
    stream = client.chat.completions.create(
        model=model,
        messages=asked(),
        max_tokens=12,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    assert text == whole.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    finishes = [c.finish_reason for chunk in chunks for c in chunk.choices if c.finish_reason]
    assert finishes == [whole.choices[0].finish_reason]
    assert chunks[-1].usage == whole.usage
    assert {(chunk.id, chunk.created, chunk.model) for chunk in chunks} == {
        (chunks[0].id, chunks[0].created, model)
    }


def test_one_seed_gives_four_choices_that_differ_and_repeat(client: OpenAI, model: str) -> None:
    def sample() -> list[str | None]:
        answer = client.chat.completions.create(
            model=model, messages=asked("Tell a story."), n=4, seed=7, max_tokens=10, temperature=1.0
        )
        return [choice.message.content for choice in sorted(answer.choices, key=lambda choice: choice.index)]

    first = sample()
    assert len(set(first)) == 4
    assert sample() == first


def test_logprobs_come_in_openais_shape(client: OpenAI, model: str) -> None:
    answer = client.chat.completions.create(
        model=model, messages=asked(), max_tokens=4, temperature=0, logprobs=True, top_logprobs=3
    )
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content
    for token in logprobs.content:
        assert token.logprob <= 0
        assert len(token.top_logprobs) == 3
        assert bytes(token.bytes or []).decode("utf-8", "replace") == token.token


def test_a_stop_string_never_comes_out(client: OpenAI, model: str) -> None:
    """vllm#3574, with the real worker."""
    plain = client.chat.completions.create(model=model, messages=asked(), max_tokens=16, temperature=0)
    text = plain.choices[0].message.content or ""
    stop = text[3:8]
    assert len(stop) == 5
    stream = client.chat.completions.create(
        model=model, messages=asked(), max_tokens=16, temperature=0, stop=[stop], stream=True
    )
    chunks = list(stream)
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == text[: text.index(stop)]
    assert [c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason] == [
        "stop"
    ]


def test_completions_are_served(client: OpenAI, model: str) -> None:
    answer = client.completions.create(
        model=model, prompt=["Two and two is", "The sea is"], max_tokens=4, temperature=0
    )
    assert sorted(choice.index for choice in answer.choices) == [0, 1]
    assert all(choice.text for choice in answer.choices)


def test_the_sdk_raises_what_the_errors_mean(client: OpenAI, model: str) -> None:
    with pytest.raises(openai.NotFoundError) as unknown:
        client.chat.completions.create(model="gpt-99", messages=asked())
    assert unknown.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as long:
        client.chat.completions.create(model=model, messages=asked("word " * 3_000))
    assert long.value.code == "context_length_exceeded"


def test_vllm_16529_a_bias_outside_the_vocabulary_is_a_400_and_the_engine_lives(
    client: OpenAI, model: str
) -> None:
    for bias in ({"999999": 1}, {"word": 1}):
        with pytest.raises(openai.BadRequestError) as refused:
            client.chat.completions.create(model=model, messages=asked(), logit_bias=bias)
        assert refused.value.param == "logit_bias"
    assert client.chat.completions.create(model=model, messages=asked(), max_tokens=1).choices


def test_a_rag_question_is_pruned_answered_and_recorded(
    http: httpx.Client, model: str, wait_until: WaitUntil
) -> None:
    body = {
        "model": model,
        "messages": asked(QUESTION),
        "documents": DOCUMENTS,
        "task": "rag_qa",
        "max_tokens": 12,
        "stream": True,
    }
    response = http.post(CHAT, json=body, headers={"X-Gravity-Lane": "treatment"})
    *chunks, done = events_of(response.content)
    assert done == "[DONE]"
    opening, closing = chunks[0]["gravity"], chunks[-1]["gravity"]
    assert (opening["task"], opening["lane"]) == ("rag_qa", "treatment")
    verdicts = {document["id"]: document for document in opening["documents"]}
    assert verdicts["doc-0"]["kept"]
    assert verdicts["doc-0"]["metadata"] == {"page": 4}
    assert (verdicts["doc-1"]["kept"], verdicts["doc-1"]["reason"]) == (False, "duplicate")
    assert (verdicts["doc-4"]["kept"], verdicts["doc-4"]["reason"]) == (False, "off_theme")
    assert 0 < opening["tokens_after"] < opening["tokens_before"]
    assert not opening["are_tokens_estimated"]

    turn = turn_of(http, opening["turn_id"], wait_until)
    (choice,) = turn["choices"]
    steps = choice["steps"]
    usage_tokens = turn["turn"]["outcome"]["completion_tokens"]
    assert choice["num_steps"] == usage_tokens == len(steps["token_id"])
    assert closing["mean_entropy_nats"] == pytest.approx(_mean(steps["entropy_nats"]), abs=1e-4)
    assert closing["mean_gravity"] == pytest.approx(_mean(steps["gravity"]), abs=1e-5)
    entropies = steps["entropy_nats"]
    tau = math.fsum(max(0.0, a - b) for a, b in itertools.pairwise(entropies))
    assert closing["entropic_time_nats"] == pytest.approx(tau, abs=1e-3)
    assert set(steps["bucket"]) == {opening["bucket"]}
    prompt = str(turn["turn"]["upstream_body"]["messages"])
    assert "Osprey" in prompt
    assert "Photosynthesis" not in prompt


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)


def test_the_control_lane_is_unpruned_and_undecorated_and_still_measured(
    http: httpx.Client, model: str, wait_until: WaitUntil
) -> None:
    body = {
        "model": model,
        "messages": asked(QUESTION),
        "documents": DOCUMENTS,
        "task": "rag_qa",
        "max_tokens": 6,
    }
    gravity = http.post(CHAT, json=body, headers={"X-Gravity-Lane": "control"}).json()["gravity"]
    assert {document["reason"] for document in gravity["documents"]} == {"unpruned"}
    assert gravity["tokens_before"] == gravity["tokens_after"]
    turn = turn_of(http, gravity["turn_id"], wait_until)
    controls = turn["turn"]["controls"]
    assert [controls[name] for name in ("adaptive", "gravity", "temperature")] == [None] * 3
    assert set(turn["choices"][0]["steps"]["bias_nats"]) == {0.0}
    assert min(turn["choices"][0]["steps"]["entropy_nats"]) >= 0.0
    assert "Photosynthesis" in str(turn["turn"]["upstream_body"]["messages"])


def test_leaving_mid_stream_ends_the_trace_as_cancelled(
    http: httpx.Client, model: str, wait_until: WaitUntil
) -> None:
    """litellm#30245, with the real worker."""
    body = {"model": model, "messages": asked("Count to a thousand."), "max_tokens": 800, "stream": True}
    body |= {"ignore_eos": True}
    with http.stream("POST", CHAT, json=body) as response:
        turn_id = response.headers["x-gravity-turn-id"]
        assert next(response.iter_bytes())
    turn = turn_of(http, turn_id, wait_until)
    assert turn["turn"]["outcome"]["status"] == "cancelled"
    assert turn["choices"][0]["finish_reason"] == "cancelled"
    assert turn["choices"][0]["num_steps"] < 800


def test_a_turns_override_of_gravity_reaches_the_worker(
    http: httpx.Client, model: str, wait_until: WaitUntil
) -> None:
    override = {"gravity_strength": 2.5, "core_semantics": ["ocean"], "adaptive": {"k_min": 2, "k_max": 9}}
    body = {"model": model, "messages": asked(), "max_tokens": 4, "gravity": override, "temperature": 1.0}
    gravity = http.post(CHAT, json=body).json()["gravity"]
    turn = turn_of(http, gravity["turn_id"], wait_until)
    controls = turn["turn"]["controls"]
    assert controls["gravity"]["strength"] == 2.5
    assert "ocean" in controls["gravity"]["keywords"]
    assert all(2 <= k <= 9 for k in turn["choices"][0]["steps"]["k"])


def test_the_process_serves_as_the_application_does(
    start_process: Any, worker_server: Any, valkey_url: str, model: str, wait_until: WaitUntil
) -> None:
    environment = {
        "NG_PORT": "0",
        "NG_WORKERS": worker_server.url,
        "NG_REDIS_URL": valkey_url,
        "NG_CONFIG_DIR": str(REPOSITORY / "configs"),
        "NG_PRELOAD_ENCODER": "false",
    }
    running = start_process(["-m", "gateway"], environment)
    wait_until(lambda: httpx.get(running.url + "/readyz").status_code == 200)
    body = {"model": model, "messages": asked(), "max_tokens": 2}
    assert httpx.post(running.url + CHAT, json=body, timeout=60.0).status_code == 200
    assert running.end() == 0
    events = [event["event"] for event in running.events()]
    assert events[:2] == ["no_keys", "ready"]  # it says first that it is open to this machine
    assert {"turn", "draining", "drained"} <= set(events)
