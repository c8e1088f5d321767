"""Whatever a client writes, it is told what is wrong in OpenAI's shape, and the others are served."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
MESSAGES = [{"role": "user", "content": "Hi"}]

DEEP = b"[" * 100_000 + b"]" * 100_000


def error_of(response: httpx.Response) -> dict[str, Any]:
    body = response.json()
    assert list(body) == ["error"]
    assert set(body["error"]) == {"message", "type", "param", "code"}
    error: dict[str, Any] = body["error"]
    return error


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"text"',
        b'{"model": "m", "messages": [{"role": "user", "content": "\xff\xfe"}]}',
        b'{"model": "m", "messages": [{"role": "user", "content": "\\ud800"}]}',
        b'{"model": "m", "temperature": NaN, "messages": []}',
        b'{"model": "m", "temperature": -Infinity, "messages": []}',
        b'{"model": "m", "unknown": NaN}',
        b'{"model": "m", "n": 1' + b"0" * 5000 + b"}",
        b'{"model": "m", "messages": ' + DEEP + b"}",
        b'{"model": "m", "unknown": ' + DEEP + b"}",
    ],
    ids=lambda raw: repr(raw[:40]),
)
@pytest.mark.parametrize("path", [CHAT, TEXT, "/tokenize", "/replay"])
def test_what_is_no_json_object_is_a_400(client: httpx.Client, path: str, raw: bytes) -> None:
    response = client.post(path, content=raw)
    assert response.status_code == 400
    error = error_of(response)
    assert (error["type"], error["code"]) == ("invalid_request_error", "invalid_json")


BAD_FIELDS: list[tuple[str, dict[str, Any], str]] = [
    (CHAT, {"messages": None}, "messages"),
    (CHAT, {"messages": []}, "messages"),
    (CHAT, {"messages": {"role": "user", "content": "Hi"}}, "messages"),
    (CHAT, {"messages": [{"role": "robot", "content": "Hi"}]}, "messages"),
    (CHAT, {"messages": [{"role": "user", "content": 5}]}, "messages"),
    (CHAT, {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages"),
    (CHAT, {"model": None}, "model"),
    (CHAT, {"model": 5}, "model"),
    (CHAT, {"n": True}, "n"),
    (CHAT, {"n": 0}, "n"),
    (CHAT, {"n": "2"}, "n"),
    (CHAT, {"n": 1.5}, "n"),
    (CHAT, {"n": 10_000}, "n"),
    (CHAT, {"temperature": 2.1}, "temperature"),
    (CHAT, {"temperature": -0.1}, "temperature"),
    (CHAT, {"temperature": "hot"}, "temperature"),
    (CHAT, {"temperature": True}, "temperature"),
    (CHAT, {"top_p": 0}, "top_p"),
    (CHAT, {"top_p": 1.01}, "top_p"),
    (CHAT, {"top_k": -2}, "top_k"),
    (CHAT, {"min_p": 2}, "min_p"),
    (CHAT, {"presence_penalty": 3}, "presence_penalty"),
    (CHAT, {"frequency_penalty": -3}, "frequency_penalty"),
    (CHAT, {"repetition_penalty": 0}, "repetition_penalty"),
    (CHAT, {"max_tokens": 0}, "max_tokens"),
    (CHAT, {"max_tokens": -1}, "max_tokens"),
    (CHAT, {"max_completion_tokens": "many"}, "max_completion_tokens"),
    (CHAT, {"seed": 1 << 64}, "seed"),
    (CHAT, {"seed": 1.5}, "seed"),
    (CHAT, {"stop": ["a", "b", "c", "d", "e"]}, "stop"),
    (CHAT, {"stop": ""}, "stop"),
    (CHAT, {"stop": [1]}, "stop"),
    (CHAT, {"stream": "yes"}, "stream"),
    (CHAT, {"stream_options": {"include_usage": True}}, "stream_options"),
    (CHAT, {"stream": True, "stream_options": {"include_usage": "yes"}}, "stream_options"),
    (CHAT, {"logprobs": 1}, "logprobs"),
    (CHAT, {"top_logprobs": 2}, "top_logprobs"),
    (CHAT, {"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    (CHAT, {"logprobs": True, "top_logprobs": -1}, "top_logprobs"),
    (CHAT, {"logit_bias": {"5": 101}}, "logit_bias"),
    (CHAT, {"logit_bias": {"49152": 1}}, "logit_bias"),
    (CHAT, {"logit_bias": {"-1": 1}}, "logit_bias"),
    (CHAT, {"logit_bias": {"hello": 1}}, "logit_bias"),
    (CHAT, {"logit_bias": {"5": "much"}}, "logit_bias"),
    (CHAT, {"logit_bias": [5]}, "logit_bias"),
    (CHAT, {"response_format": {"type": "json_object"}}, "response_format"),
    (CHAT, {"response_format": {"type": "json_schema", "json_schema": {}}}, "response_format"),
    (CHAT, {"tools": [{"type": "function"}]}, "tools"),
    (CHAT, {"stop_token_ids": [49152]}, "stop_token_ids"),
    (CHAT, {"vllm_xargs": {"gravity": {"adaptive": {}}}}, "vllm_xargs"),
    (CHAT, {"vllm_xargs": {"gravity": "{"}}, "vllm_xargs"),
    (CHAT, {"vllm_xargs": {"gravity": '{"adaptive": {"k_min": 9, "k_max": 3}}'}}, "vllm_xargs"),
    (CHAT, {"vllm_xargs": {"gravity": '{"adaptive": {"k_min": "9"}}'}}, "vllm_xargs"),
    (CHAT, {"vllm_xargs": {"gravity": '{"gravity": {"strength": 1e999}}'}}, "vllm_xargs"),
    (CHAT, {"vllm_xargs": {"gravity": '{"unheard_of": 1}'}}, "vllm_xargs"),
    (CHAT, {"vllm_xargs": []}, "vllm_xargs"),
    (TEXT, {"prompt": None}, "prompt"),
    (TEXT, {"prompt": []}, "prompt"),
    (TEXT, {"prompt": ""}, "prompt"),
    (TEXT, {"prompt": [[]]}, "prompt"),
    (TEXT, {"prompt": ["a", 5]}, "prompt"),
    (TEXT, {"prompt": [5, [6]]}, "prompt"),
    (TEXT, {"prompt": [49152]}, "prompt"),
    (TEXT, {"prompt": [-1]}, "prompt"),
    (TEXT, {"prompt": [True]}, "prompt"),
    (TEXT, {"prompt": {"text": "Hi"}}, "prompt"),
    (TEXT, {"logprobs": True}, "logprobs"),
    (TEXT, {"logprobs": 21}, "logprobs"),
    (TEXT, {"echo": True}, "echo"),
    (TEXT, {"best_of": 3}, "best_of"),
    (TEXT, {"suffix": "end"}, "suffix"),
]


@pytest.mark.parametrize(("path", "change", "param"), BAD_FIELDS, ids=lambda value: str(value)[:60])
def test_a_bad_field_is_a_400_that_names_it(
    client: httpx.Client, model_name: str, path: str, change: dict[str, Any], param: str
) -> None:
    body: dict[str, Any] = {"model": model_name, "max_tokens": 2}
    body |= {"messages": MESSAGES} if path == CHAT else {"prompt": "Hi"}
    response = client.post(path, json=body | change)
    assert response.status_code == 400
    error = error_of(response)
    assert (error["type"], error["code"], error["param"]) == ("invalid_request_error", "invalid_value", param)
    assert len(error["message"]) < 1000


def test_a_bad_control_is_told_by_its_path(client: httpx.Client, model_name: str) -> None:
    controls = '{"gravity": {"stages": [{"from_step": 1, "factor": 99}]}}'
    request = {"model": model_name, "prompt": "Hi", "vllm_xargs": {"gravity": controls}}
    message = error_of(client.post(TEXT, json=request))["message"]
    assert message.startswith("vllm_xargs.gravity.gravity.stages.0.factor: ")


def test_nan_as_a_word_is_only_a_word(client: httpx.Client, model_name: str) -> None:
    request = {"model": model_name, "prompt": "NaN and Infinity are no", "max_tokens": 1}
    assert client.post(TEXT, json=request).status_code == 200


def test_more_choices_than_can_ever_wait_are_a_400_and_no_429(client: httpx.Client, model_name: str) -> None:
    request = {"model": model_name, "prompt": ["a"] * 100, "max_tokens": 1}
    many = client.post(TEXT, json=request | {"n": 100})
    assert (many.status_code, error_of(many)["param"]) == (400, "n")
    long = client.post(TEXT, json=request | {"prompt": ["a"] * 1000})
    assert (long.status_code, error_of(long)["param"]) == (400, "prompt")


@pytest.mark.parametrize("number", [b"1e999", b"-1e999"])
def test_a_number_beyond_all_floats_is_a_400(client: httpx.Client, number: bytes) -> None:
    raw = b'{"model": "m", "prompt": "Hi", "temperature": ' + number + b"}"
    response = client.post(TEXT, content=raw)
    assert response.status_code == 400
    assert error_of(response)["param"] == "temperature"


@pytest.mark.parametrize("path", [CHAT, TEXT])
@pytest.mark.parametrize("stream", [False, True])
def test_a_context_that_is_too_long_is_a_400_of_its_own_code(
    client: httpx.Client, model_name: str, path: str, stream: bool
) -> None:
    long = "word " * 1100
    body: dict[str, Any] = {"model": model_name, "stream": stream}
    body |= {"messages": [{"role": "user", "content": long}]} if path == CHAT else {"prompt": long}
    response = client.post(path, json=body)
    assert response.status_code == 400
    error = error_of(response)
    assert error["code"] == "context_length_exceeded"
    assert error["param"] == ("messages" if path == CHAT else "prompt")
    assert "1024" in error["message"]


def test_prompt_and_completion_must_fit_together(client: httpx.Client, model_name: str) -> None:
    request = {"model": model_name, "prompt": [5] * 1000, "max_tokens": 25}
    response = client.post(TEXT, json=request)
    assert error_of(response)["code"] == "context_length_exceeded"
    assert "1025" in error_of(response)["message"]


def test_a_model_that_is_not_served_is_a_404(client: httpx.Client, sdk: openai.OpenAI) -> None:
    response = client.post(CHAT, json={"model": "other", "messages": MESSAGES})
    assert response.status_code == 404
    error = error_of(response)
    assert (error["code"], error["param"]) == ("model_not_found", "model")
    with pytest.raises(openai.NotFoundError) as raised:
        sdk.completions.create(model="other", prompt="Hi")
    assert raised.value.code == "model_not_found"
    assert client.get("/v1/models/other").status_code == 404


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/nowhere", 404), ("POST", "/v1/embeddings", 404), ("GET", CHAT, 405), ("DELETE", TEXT, 405)],
)
def test_paths_and_methods_that_are_not_there_have_the_shape_too(
    client: httpx.Client, method: str, path: str, status: int
) -> None:
    response = client.request(method, path)
    assert response.status_code == status
    assert error_of(response)["type"] == "invalid_request_error"


def test_a_body_over_the_limit_is_a_413_with_and_without_its_length(client: httpx.Client) -> None:
    limit = 16 * 1024 * 1024
    whole = client.post(TEXT, content=b" " * (limit + 1))
    assert whole.status_code == 413
    assert error_of(whole)["code"] == "request_too_large"

    def pieces() -> Iterator[bytes]:
        for _ in range(17):
            yield b" " * (1024 * 1024)

    assert client.post(TEXT, content=pieces()).status_code == 413


def test_a_large_body_within_the_limit_is_served(client: httpx.Client, model_name: str) -> None:
    request = {"model": model_name, "prompt": "Hi", "max_tokens": 1, "metadata": "x" * (8 * 1024 * 1024)}
    assert client.post(TEXT, json=request).status_code == 200


def test_every_null_is_as_if_the_field_were_absent(client: httpx.Client, model_name: str) -> None:
    nothing = dict.fromkeys(
        ["n", "temperature", "top_p", "stop", "seed", "logit_bias", "logprobs", "stream", "stream_options"]
    )
    request = {"model": model_name, "prompt": "Hi", "max_tokens": 1, **nothing}
    assert client.post(TEXT, json=request).status_code == 200


def test_a_failed_request_leaves_the_running_one_alone(client: httpx.Client, model_name: str) -> None:
    request = {
        "model": model_name,
        "prompt": "One, two,",
        "temperature": 0,
        "max_tokens": 20,
        "ignore_eos": True,
    }
    expected = client.post(TEXT, json=request).json()["choices"][0]["text"]
    with client.stream("POST", TEXT, json=request | {"stream": True}) as response:
        lines = response.iter_lines()
        first = next(line for line in lines if line)
        for path, change, _ in BAD_FIELDS[:20]:
            assert httpx.post(
                str(client.base_url.join(path)), json={"model": model_name} | change
            ).status_code in (400, 404)
        rest = [line for line in lines if line]
    chunks = [json.loads(line.removeprefix("data: ")) for line in [first, *rest[:-1]]]
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == expected
