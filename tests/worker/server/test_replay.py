"""/replay: the recorded tokens again under the recorded controls, and the exact form."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from redis import Redis

from worker.protocol import STEP_COLUMNS, StepRecord, unpack_steps

if TYPE_CHECKING:
    from tests.conftest import WaitUntil

CONTROLS = {
    "adaptive": {"k_min": 2, "k_max": 40, "smoothing": 0.3},
    "gravity": {
        "strength": 2.0,
        "keywords": ["river", "mountain"],
        "decay_after_steps": 4,
        "stages": [{"from_share": 0.25, "factor": 0.5}],
    },
    "temperature": {"mode": "feedback", "target_nats": 1.5, "gain": 0.3},
    "bucket": 1,
}


def recorded(url: str, turn_id: str, choice: int) -> tuple[list[StepRecord], bool]:
    """The steps of one choice so far, and whether its end is there."""
    with Redis.from_url(url) as client:
        found: Any = client.xrange(f"ng:trace:{turn_id}")
    fields = [entry for _, entry in found if int(entry[b"choice"]) == choice]
    steps = [record for entry in fields if b"end" not in entry for record in unpack_steps(entry)[2]]
    return steps, any(b"end" in entry for entry in fields)


def request_of(model: str, turn_id: str, **fields: Any) -> dict[str, Any]:
    return {
        "model": model,
        "messages": [{"role": "user", "content": "Describe a landscape."}],
        "max_tokens": 24,
        "temperature": 0.9,
        "seed": 77,
        "vllm_xargs": {"gravity": json.dumps(CONTROLS | {"trace": {"turn_id": turn_id}})},
        **fields,
    }


@pytest.mark.parametrize("choice", [0, 1])
def test_the_recorded_tokens_give_the_recorded_steps_again(
    client: httpx.Client, valkey_url: str, model_name: str, wait_until: WaitUntil, choice: int
) -> None:
    turn_id = uuid.uuid4().hex
    request = request_of(model_name, turn_id, n=2, stream=True, stop=["zzz"])
    assert client.post("/v1/chat/completions", json=request).status_code == 200
    wait_until(lambda: recorded(valkey_url, turn_id, choice)[1])
    steps, _ = recorded(valkey_url, turn_id, choice)
    body = client.post(
        "/replay",
        json={
            "request": request,
            "endpoint": "/v1/chat/completions",
            "choice": choice,
            "tokens": [step.token_id for step in steps],
        },
    ).json()
    assert list(body["steps"]) == list(STEP_COLUMNS)
    assert body["tokens"] == body["steps"]["token_id"] == [step.token_id for step in steps]
    for name in ("entropy_nats", "gravity", "logprob", "temperature", "bias_nats", "entropy_after_nats"):
        assert body["steps"][name] == pytest.approx([getattr(step, name) for step in steps], abs=5e-3), name
    assert body["steps"]["k"] == [step.k for step in steps]
    assert set(body["steps"]["bucket"]) == {1}
    assert body["dtype"] == "fp32"
    assert recorded(valkey_url, turn_id, choice)[0] == steps, "a replay wrote to the trace"


def test_without_tokens_the_seed_gives_exactly_the_tokens_again(
    client: httpx.Client, valkey_url: str, model_name: str, wait_until: WaitUntil
) -> None:
    turn_id = uuid.uuid4().hex
    request = request_of(model_name, turn_id)
    answer = client.post("/v1/chat/completions", json=request).json()["choices"][0]
    wait_until(lambda: recorded(valkey_url, turn_id, 0)[1])
    steps, _ = recorded(valkey_url, turn_id, 0)
    body = client.post(
        "/replay", json={"request": request, "endpoint": "/v1/chat/completions", "tokens": None}
    ).json()
    assert body["tokens"] == [step.token_id for step in steps]
    assert body["text"] == answer["message"]["content"]
    assert set(body["steps"]["batch_size"]) == {1}


def test_a_replay_that_ends_in_a_stop_string_ends_where_the_turn_did(
    client: httpx.Client, valkey_url: str, tokenizer: Any, model_name: str, wait_until: WaitUntil
) -> None:
    turn_id = uuid.uuid4().hex
    request = {
        "model": model_name,
        "prompt": "One two three four five six",
        "temperature": 0,
        "max_tokens": 30,
        "stop": " way",
        "vllm_xargs": {"gravity": json.dumps({"trace": {"turn_id": turn_id}})},
    }
    answer = client.post("/v1/completions", json=request).json()["choices"][0]
    assert answer["finish_reason"] == "stop"
    wait_until(lambda: recorded(valkey_url, turn_id, 0)[1])
    steps, _ = recorded(valkey_url, turn_id, 0)
    assert tokenizer.decode([step.token_id for step in steps]).startswith(answer["text"] + " way")
    body = client.post(
        "/replay",
        json={
            "request": request,
            "endpoint": "/v1/completions",
            "tokens": [step.token_id for step in steps],
        },
    ).json()
    assert body["text"] == answer["text"]
    assert len(body["tokens"]) == len(steps)


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"choice": 5}, "choice"),
        ({"tokens": [10_000_000]}, "tokens"),
        ({"tokens": [-1]}, "tokens"),
        ({"tokens": []}, "tokens"),
        ({"endpoint": "/v1/embeddings"}, "endpoint"),
        ({"request": {"model": "SmolLM2-135M-Instruct"}}, "messages"),
        ({"request": []}, "request"),
    ],
)
def test_a_replay_that_cannot_be_is_a_400(
    client: httpx.Client, model_name: str, change: dict[str, Any], param: str
) -> None:
    body = {"request": request_of(model_name, "x"), "endpoint": "/v1/chat/completions", "tokens": [5]}
    response = client.post("/replay", json=body | change)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == param


def test_a_replay_shows_the_likeliest_tokens_before_and_after_gravity(
    client: httpx.Client, model_name: str, tokenizer: Any
) -> None:
    controls = {"gravity": {"strength": 5.0, "keywords": ["mountain"], "boost_weight": 0.4, "plausible": 0}}
    request = request_of(model_name, "unused", max_tokens=3, temperature=0)
    request["vllm_xargs"] = {"gravity": json.dumps(controls)}
    body = {"request": request, "endpoint": "/v1/chat/completions"}
    old = client.post("/replay", json=body).json()
    answer = client.post("/replay", json=body | {"num_top": 20}).json()
    assert old.keys() == {"steps", "tokens", "text", "model", "dtype"}
    for each in (old, answer):
        del each["steps"]["engine_step"]  # counts on
    assert {name: answer[name] for name in old} == old
    assert answer["environment"]["dtype"] == old["dtype"]
    assert answer["pieces"] == [tokenizer.decode([token_id]) for token_id in answer["tokens"]]
    plain = client.post(
        "/v1/completions", json=request_as_tokens(request, tokenizer) | {"logprobs": 5, "max_tokens": 1}
    ).json()["choices"][0]["logprobs"]
    first = {token["piece"]: token["logprob"] for token in answer["top"][0][:5]}
    assert first == pytest.approx(plain["top_logprobs"][0], abs=1e-3)
    before = {token["id"]: token["logprob"] for token in answer["top"][0]}
    after = {token["id"]: token["logprob"] for token in answer["top_after"][0]}
    words = (" mountain", "mountain", " Mountain", "Mountain", " mountains", "mountains")
    pulled = {tokenizer.encode(word)[0] for word in words}
    shifts = [after[id_] - before[id_] for id_ in before.keys() & after.keys() - pulled]
    assert max(shifts) - min(shifts) < 1e-3  # what is not pulled loses one share, to what is
    assert len(shifts) >= 10
    assert max(shifts) <= 1e-3


def request_as_tokens(request: dict[str, Any], tokenizer: Any) -> dict[str, Any]:
    """The same question as a plain completion, without gravity."""
    prompt = tokenizer.apply_chat_template(request["messages"], add_generation_prompt=True, tokenize=False)
    return {"model": request["model"], "prompt": prompt, "temperature": 0}


def test_a_replay_shows_at_most_20_tokens(client: httpx.Client, model_name: str) -> None:
    body = {"request": request_of(model_name, "unused"), "endpoint": "/v1/chat/completions", "num_top": 21}
    refused = client.post("/replay", json=body)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "num_top")


def test_a_trace_without_tokens_keeps_everything_else(
    client: httpx.Client, valkey_url: str, model_name: str, wait_until: WaitUntil
) -> None:
    turns = {True: uuid.uuid4().hex, False: uuid.uuid4().hex}
    for has_tokens, turn_id in turns.items():
        request = request_of(model_name, turn_id, max_tokens=4)
        trace = {"turn_id": turn_id, "has_tokens": has_tokens}
        request["vllm_xargs"] = {"gravity": json.dumps(CONTROLS | {"trace": trace})}
        assert client.post("/v1/chat/completions", json=request).status_code == 200
    wait_until(lambda: all(recorded(valkey_url, turn_id, 0)[1] for turn_id in turns.values()))
    told, untold = (recorded(valkey_url, turn_id, 0)[0] for turn_id in turns.values())
    assert [step.token_id for step in untold] == [-1] * 4
    assert -1 not in [step.token_id for step in told]
    assert [step.entropy_nats for step in untold] == [step.entropy_nats for step in told]
