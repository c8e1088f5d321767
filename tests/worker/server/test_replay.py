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
