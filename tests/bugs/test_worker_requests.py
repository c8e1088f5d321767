"""Requests that broke other servers, sent to the worker. Each test is named after the public report."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import httpx
import pytest

if TYPE_CHECKING:
    from tests.conftest import RunningProcess

MODEL = "SmolLM2-135M-Instruct"
CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
ERROR_FIELDS = {"message", "type", "param", "code"}


@pytest.fixture
def client(worker_server: RunningProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=worker_server.url, timeout=60) as client:
        yield client


def chat(**fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": "Say hello."}]
    return {"model": MODEL, "messages": messages, "temperature": 0, "max_tokens": 4, **fields}


def assert_serves(client: httpx.Client) -> None:
    answer = client.post(CHAT, json=chat())
    assert answer.status_code == 200
    assert answer.json()["choices"][0]["message"]["content"]


def test_ray_64833_an_unknown_model_has_the_error_shape(client: httpx.Client) -> None:
    response = client.post(CHAT, json=chat(model="gpt-that-is-not-here"))
    assert response.status_code == 404
    error = response.json()["error"]
    assert set(error) == ERROR_FIELDS
    assert error["type"] == "invalid_request_error"
    assert (error["code"], error["param"]) == ("model_not_found", "model")


@pytest.mark.parametrize("messages", [{"role": "user", "content": "Hi"}, "Hi", 5, None])
def test_ray_64833_messages_that_are_no_list_have_the_error_shape(
    client: httpx.Client, messages: Any
) -> None:
    response = client.post(CHAT, json=chat(messages=messages))
    assert response.status_code == 400
    error = response.json()["error"]
    assert set(error) == ERROR_FIELDS
    assert error["type"] == "invalid_request_error"
    assert error["param"] == "messages"


@pytest.mark.parametrize("escape", ["\\ud83d", "\\udc00", "x\\ud83dx", "\\ude00\\ud83d"])
@pytest.mark.parametrize("where", ["content", "stop", "prompt", "unknown", "key"])
def test_colibri_1589_a_lone_surrogate_is_a_400(client: httpx.Client, escape: str, where: str) -> None:
    path = TEXT if where == "prompt" else CHAT
    bodies = {
        "content": chat(messages=[{"role": "user", "content": "@"}]),
        "stop": chat(stop="@"),
        "prompt": {"model": MODEL, "prompt": "@", "max_tokens": 2},
        "unknown": chat(metadata={"note": "@"}),
        "key": chat(**{"@": 1}),
    }
    response = client.post(path, content=json.dumps(bodies[where]).replace("@", escape).encode())
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "invalid_json"
    assert_serves(client)


def test_colibri_1589_a_pair_of_surrogates_is_a_character(client: httpx.Client) -> None:
    raw = json.dumps(chat(messages=[{"role": "user", "content": "😀"}]))
    assert "\\ud83d\\ude00" in raw
    assert client.post(CHAT, content=raw.encode()).status_code == 200


@pytest.mark.parametrize(
    "key", ["49152", "999999999999999999999", "-1", "hello", "", "1.5", " 5", "٣", "0x5"]
)
@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_vllm_16529_a_logit_bias_for_no_token_is_a_400_and_the_engine_lives(
    client: httpx.Client, path: str, key: str
) -> None:
    body = chat(logit_bias={key: 10})
    if path == TEXT:
        body = {"model": MODEL, "prompt": "Hi", "max_tokens": 2, "logit_bias": {key: 10}}
    response = client.post(path, json=body)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "logit_bias"
    assert_serves(client)


def test_vllm_16529_the_last_token_of_the_vocabulary_may_be_biased(client: httpx.Client) -> None:
    assert client.post(CHAT, json=chat(logit_bias={"49151": -100, "0": -100})).status_code == 200


def test_vllm_4795_logprobs_without_top_logprobs_have_empty_lists(client: httpx.Client) -> None:
    choice = client.post(CHAT, json=chat(logprobs=True)).json()["choices"][0]
    content = choice["logprobs"]["content"]
    assert "".join(entry["token"] for entry in content) == choice["message"]["content"]
    assert all(entry["top_logprobs"] == [] for entry in content)
    assert all(entry["logprob"] <= 0.0 for entry in content)


@pytest.mark.parametrize("count", [21, 1_000_000, -1, 1 << 40])
def test_vllm_4795_and_sglang_40076_top_logprobs_over_the_limit_are_a_400(
    client: httpx.Client, count: int
) -> None:
    response = client.post(CHAT, json=chat(logprobs=True, top_logprobs=count))
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "top_logprobs"
    legacy = client.post(TEXT, json={"model": MODEL, "prompt": "Hi", "logprobs": count})
    assert legacy.status_code == 400
    assert legacy.json()["error"]["param"] == "logprobs"
    assert_serves(client)


SECRET = "value-that-must-not-be-the-param"

VLLM_12886: list[tuple[str, dict[str, Any]]] = [
    ("model", chat(model=SECRET)),
    ("messages", chat(messages=SECRET)),
    ("messages", chat(messages=[{"role": SECRET, "content": "x"}])),
    ("messages", chat(messages=[{"role": "user", "content": "word " * 2000}])),
    ("temperature", chat(temperature=SECRET)),
    ("top_p", chat(top_p=SECRET)),
    ("n", chat(n=SECRET)),
    ("seed", chat(seed=SECRET)),
    ("stream", chat(stream=SECRET)),
    ("stop", chat(stop=[SECRET] * 5)),
    ("max_tokens", chat(max_tokens=SECRET)),
    ("logit_bias", chat(logit_bias={SECRET: 1})),
    ("logit_bias", chat(logit_bias={SECRET: SECRET})),
    ("response_format", chat(response_format={"type": SECRET})),
    ("stream_options", chat(stream=True, stream_options=SECRET)),
    ("vllm_xargs", chat(vllm_xargs={"gravity": SECRET})),
    ("vllm_xargs", chat(vllm_xargs={"gravity": json.dumps({SECRET: SECRET})})),
]


@pytest.mark.parametrize(("param", "body"), VLLM_12886, ids=lambda value: str(value)[:50])
def test_vllm_12886_param_is_the_fields_name_and_never_its_value(
    client: httpx.Client, param: str, body: dict[str, Any]
) -> None:
    error = client.post(CHAT, json=body).json()["error"]
    assert error["param"] == param


@pytest.mark.parametrize("field", ["model", "messages"])
def test_vllm_12886_a_missing_field_is_named_too(client: httpx.Client, field: str) -> None:
    body = chat()
    del body[field]
    response = client.post(CHAT, json=body)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == field
