"""Public reports about requests, as inputs to the gateway: what a client writes, what it is told."""

from __future__ import annotations

import json
from typing import Any

import httpx
import orjson
import pytest

from tests.servers.gateway import CHAT, COMPLETIONS, PLAIN, Scripted, StartGateway
from tests.servers.upstream import Script, chunk, events, whole

JSON = "application/json"
MARK = "quetzalcoatl"
"""A value that no error may repeat."""


def error_of(response: httpx.Response, status: int) -> dict[str, Any]:
    """The error object, after checking that it has OpenAI's shape."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == JSON
    body = response.json()
    assert body.keys() == {"error"}
    error: dict[str, Any] = body["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert error["message"]
    return error


def send(scripted: Scripted, content: bytes, path: str = CHAT) -> httpx.Response:
    return scripted.client.post(path, content=content, headers={"content-type": JSON})


def test_ray_64833_an_unknown_model_is_a_404_with_its_code(scripted: Scripted) -> None:
    error = error_of(scripted.post(model="gpt-99"), 404)
    assert (error["type"], error["param"], error["code"]) == (
        "invalid_request_error",
        "model",
        "model_not_found",
    )


@pytest.mark.parametrize(
    "messages", [{"role": "user", "content": "a"}, "a", 7, [], None, [[]], [{"content": "a"}]]
)
def test_ray_64833_messages_that_are_none_are_a_400(scripted: Scripted, messages: object) -> None:
    error = error_of(scripted.post(messages=messages), 400)
    assert error["code"] == "invalid_value"
    assert error["param"].startswith("messages")
    assert scripted.upstream.received == []


def test_a_missing_model_is_a_400_that_names_it(scripted: Scripted) -> None:
    error = error_of(send(scripted, b'{"messages": [{"role": "user", "content": "a"}]}'), 400)
    assert error["param"] == "model"


def test_colibri_1589_a_lone_surrogate_is_a_400(scripted: Scripted) -> None:
    content = rb'{"model": "fake-model", "messages": [{"role": "user", "content": "a\ud83d b"}]}'
    assert error_of(send(scripted, content), 400)["code"] == "invalid_json"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"null",
        b'"text"',
        b"[1]",
        b'{"model": "fake-model", "messages": [{"role": "user", "content": "\xff\xfe"}]}',
        b'{"model": "fake-model", "messages": [{"role": "user", "content": "\xed\xa0\x80"}]}',
        b'{"model": "fake-model", "temperature": NaN, "messages": [{"role": "user", "content": "a"}]}',
        b'{"model": "fake-model", "temperature": 1e999, "messages": [{"role": "user", "content": "a"}]}',
        b'{"model": "fake-model", "unknown": -Infinity, "messages": [{"role": "user", "content": "a"}]}',
        b'{"model": "fake-model", "seed": '
        + b"9" * 5_000
        + b', "messages": [{"role": "user", "content": "a"}]}',
        b'{"model": "fake-model", "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"model": "fake-model", "messages": [{"role": "user", "content": "a"}], "x": '
        + b"[" * 252
        + b"]" * 252
        + b"}",
        b'{"x": ' * 100_000,
    ],
)
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_colibri_1589_what_is_no_json_is_a_400(scripted: Scripted, content: bytes, path: str) -> None:
    error = error_of(send(scripted, content, path), 400)
    assert (error["type"], error["code"]) == ("invalid_request_error", "invalid_json")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n", True),
        ("n", 0),
        ("n", 129),
        ("n", "2"),
        ("n", 1.5),
        ("stream", "true"),
        ("stream", 1),
        ("stream_options", []),
        ("stream_options", {"include_usage": "yes"}),
        ("temperature", -0.1),
        ("temperature", 2.1),
        ("temperature", "hot"),
        ("top_p", 0),
        ("top_p", 1.1),
        ("presence_penalty", 3),
        ("frequency_penalty", -3),
        ("max_tokens", 0),
        ("max_tokens", -1),
        ("max_tokens", 2**70),
        ("seed", 2**63),
        ("seed", "7"),
        ("stop", ["a", "b", "c", "d", "e"]),
        ("stop", [1]),
        ("stop", {"a": 1}),
        ("logit_bias", [1]),
        ("logit_bias", {"5": 101}),
        ("logit_bias", {"5": "much"}),
        ("user", 7),
        ("documents", "text"),
        ("documents", [7]),
        ("documents", [{"title": "no text"}]),
        ("documents", [{"id": "a", "data": 7}]),
        ("documents", [{"text": "a", "embedding": ["x"]}]),
        ("documents", [{"text": "a", "id": [1]}]),
        ("task", 7),
        ("task", "no_such_task"),
        ("gravity", [1]),
        ("gravity", {"gravity_strength": 21}),
        ("gravity", {"gravity_strength": "1"}),
        ("gravity", {"core_semantics": [""]}),
        ("gravity", {"adaptive": {"k_min": 9, "k_max": 3}}),
        ("gravity", {"trace": {"turn_id": "another"}}),
        ("model", ""),
        ("model", 7),
    ],
)
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_vllm_12886_a_wrong_field_is_named(scripted: Scripted, path: str, field: str, value: object) -> None:
    error = error_of(scripted.post(path, **{field: value}), 400)
    assert (error["type"], error["code"]) == ("invalid_request_error", "invalid_value")
    assert error["param"].split(".")[0].split("[")[0] == field
    assert scripted.upstream.received == []


@pytest.mark.parametrize(
    "body",
    [
        {"temperature": MARK},
        {"stop": {MARK: MARK}},
        {"logit_bias": {MARK: MARK}},
        {"messages": [{"role": "user", "content": {MARK: MARK}}]},
        {"messages": MARK},
        {"documents": [{"text": "a", "id": {MARK: 1}}]},
        {"documents": MARK},
        {"task": MARK},
        {"gravity": {MARK: 1}},
        {"gravity": {"adaptive": {MARK: 1}}},
        {"gravity": {"decay_after_steps": MARK}},
        {"stream_options": {"include_usage": MARK}},
    ],
)
def test_vllm_12886_no_error_repeats_a_value(scripted: Scripted, body: dict[str, Any]) -> None:
    error = error_of(scripted.post(**body), 400)
    assert error["param"].split(".")[0].split("[")[0] in body
    assert MARK not in json.dumps(error)


@pytest.mark.parametrize(
    ("told", "param"),
    [
        (MARK, None),
        (f"{MARK} 1000000", None),
        ("['1000000']", None),
        ("", None),
        (7, None),
        ("logit_bias", "logit_bias"),
        ("messages[0].content", "messages[0].content"),
        ("messages.0.content", "messages.0.content"),
    ],
)
@pytest.mark.parametrize("is_inside_stream", [False, True])
def test_vllm_12886_a_workers_param_is_told_only_where_it_is_a_field(
    scripted: Scripted, told: object, param: str | None, is_inside_stream: bool
) -> None:
    """There the server wrote the value itself into ``param``; ours may stand in front of such a one."""
    problem = {"message": "It is refused.", "type": "invalid_request_error", "param": told, "code": 400}
    if is_inside_stream:
        scripted.upstream.plays(events(chunk("some"), {"error": problem}))
        error = scripted.stream(logit_bias={"5": 1})[-2]["error"]
    else:
        scripted.upstream.plays(Script([orjson.dumps({"error": problem})], status=400, content_type=JSON))
        error = error_of(scripted.post(stream=True, logit_bias={"5": 1}), 400)
    assert (error["message"], error["param"]) == ("It is refused.", param)
    assert MARK not in json.dumps(error)


@pytest.mark.parametrize("prompt", [[], [[]], {"a": 1}, [1, "a"], [-1], [True], 7])
def test_vllm_12886_a_prompt_that_is_none_is_named(scripted: Scripted, prompt: object) -> None:
    assert error_of(scripted.post(COMPLETIONS, prompt=prompt), 400)["param"].startswith("prompt")


def test_vllm_4795_top_logprobs_over_the_limit_is_a_400(scripted: Scripted) -> None:
    """sglang#40076 too: a million of them."""
    for number in (21, 1_000_000, -1):
        assert error_of(scripted.post(logprobs=True, top_logprobs=number), 400)["param"] == "top_logprobs"
    assert error_of(scripted.post(COMPLETIONS, logprobs=21), 400)["param"] == "logprobs"


def test_vllm_4795_logprobs_without_top_logprobs_pass_untouched(scripted: Scripted) -> None:
    logprobs = {
        "content": [{"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": []}],
        "refusal": None,
    }
    piece = chunk("a")
    piece["choices"][0]["logprobs"] = logprobs
    scripted.upstream.plays(events(piece, chunk(finish="stop")))
    assert scripted.stream(logprobs=True)[0]["choices"][0]["logprobs"] == logprobs
    assert "top_logprobs" not in scripted.upstream.received[0][1]


@pytest.mark.parametrize("is_streaming", [True, False])
def test_vllm_16529_a_workers_400_is_passed_on_in_its_words(scripted: Scripted, is_streaming: bool) -> None:
    problem = {
        "message": "logit_bias names a token outside the vocabulary",
        "type": "invalid_request_error",
        "param": "logit_bias",
        "code": "invalid_value",
    }
    scripted.upstream.plays(Script([orjson.dumps({"error": problem})], status=400, content_type=JSON))
    response = scripted.post(stream=is_streaming, logit_bias={"999999": 1})
    assert error_of(response, 400) == problem


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (
            400,
            {"object": "error", "message": "This model's maximum context length is 8"},
            (400, "context_length_exceeded"),
        ),
        (422, {"detail": [{"msg": "bad"}]}, (400, "invalid_value")),
        (404, {"error": {"message": "no such model"}}, (404, "model_not_found")),
        (401, {"error": {"message": "bad key sk-123456789012"}}, (502, "upstream_error")),
        (403, {"error": {"message": "no"}}, (502, "upstream_error")),
        (413, {"error": {"message": "large"}}, (413, "request_too_large")),
        (500, {"error": {"message": "Traceback"}}, (502, "upstream_error")),
        (302, {}, (502, "upstream_error")),
        (503, {}, (503, "no_workers")),
        (504, {}, (504, "upstream_timeout")),
    ],
)
def test_a_workers_refusal_has_our_shape(
    scripted: Scripted, status: int, body: object, expected: tuple[int, str]
) -> None:
    scripted.upstream.plays(Script([orjson.dumps(body)], status=status, content_type=JSON))
    error = error_of(scripted.post(stream=True), expected[0])
    assert error["code"] == expected[1]
    assert "sk-" not in error["message"]
    assert "Traceback" not in error["message"]


def test_sglang_25811_over_long_prompts_in_a_row_leave_the_breaker_closed(
    start_gateway: StartGateway, scripted: Scripted
) -> None:
    problem = {"error": {"message": "too long", "code": "context_length_exceeded"}}
    scripted.upstream.plays(
        *[Script([orjson.dumps(problem)], status=400, content_type=JSON)] * 5,
        Script([whole("served")], content_type=JSON),
    )
    gateway = start_gateway(scripted.upstream.url, breaker_failures=1)
    statuses = [httpx.post(gateway.url + CHAT, json=PLAIN[CHAT]).status_code for _ in range(6)]
    assert statuses == [400] * 5 + [200]


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 413, 415, 422, 429, 451, 503])
def test_sglang_25811_no_4xx_of_a_worker_opens_its_breaker(
    start_gateway: StartGateway, scripted: Scripted, status: int
) -> None:
    """The whole kind: what one client's requests are refused for must not take the worker from the others."""
    scripted.upstream.plays(
        *[Script([b'{"error": {"message": "no"}}'], status=status, content_type=JSON)] * 5,
        Script([whole("served")], content_type=JSON),
    )
    gateway = start_gateway(scripted.upstream.url, breaker_failures=1)
    statuses = [httpx.post(gateway.url + CHAT, json=PLAIN[CHAT]).status_code for _ in range(6)]
    assert statuses[5] == 200
    assert len(set(statuses[:5])) == 1
    assert statuses[0] >= 400


def test_llm_d_router_1735_no_worker_at_all_is_a_503(start_gateway: StartGateway) -> None:
    gateway = start_gateway(wait=False)
    response = httpx.post(gateway.url + CHAT, json=PLAIN[CHAT])
    error = error_of(response, 503)
    assert (error["type"], error["code"]) == ("server_error", "no_workers")
    assert int(response.headers["retry-after"]) >= 1


@pytest.mark.parametrize("is_streaming", [True, False])
def test_llm_d_router_1735_a_worker_that_is_not_there_is_a_503(
    start_gateway: StartGateway, free_port: Any, is_streaming: bool
) -> None:
    gateway = start_gateway(f"http://127.0.0.1:{free_port()}", wait=False)
    response = httpx.post(gateway.url + CHAT, json=PLAIN[CHAT] | {"stream": is_streaming})
    assert error_of(response, 503)["code"] == "no_workers"


def _body_of(num_bytes: int) -> bytes:
    frame = b'{"model": "fake-model", "messages": [{"role": "user", "content": "%s"}]}'
    return frame % (b"a" * (num_bytes - len(frame) + 2))


@pytest.mark.parametrize("num_bytes", [32 * 1024, 128 * 1024, 16 * 1024 * 1024])
def test_ai_gateway_827_bodies_up_to_the_limit_are_served(scripted: Scripted, num_bytes: int) -> None:
    scripted.upstream.plays(Script([whole("ok")], content_type=JSON))
    content = _body_of(num_bytes)
    assert len(content) == num_bytes
    assert send(scripted, content).status_code == 200
    assert scripted.upstream.received[0][1]["messages"] == orjson.loads(content)["messages"]


@pytest.mark.parametrize("is_announced", [True, False])
def test_ai_gateway_827_one_byte_over_the_limit_is_a_413(scripted: Scripted, is_announced: bool) -> None:
    content = _body_of(16 * 1024 * 1024 + 1)
    pieces = (content[i : i + 65_536] for i in range(0, len(content), 65_536))
    response = scripted.client.post(CHAT, content=content if is_announced else pieces)
    error = error_of(response, 413)
    assert (error["type"], error["code"]) == ("invalid_request_error", "request_too_large")
    assert scripted.upstream.received == []


def test_litellm_26987_health_asks_no_model_however_often_it_is_polled(scripted: Scripted) -> None:
    for path in ("/health", "/livez", "/readyz", "/metrics", "/v1/models") * 10:
        assert scripted.client.get(path).status_code == 200
    assert scripted.upstream.received == []
    # What its worker hears of it are the probes, which come at their own pace.
    assert set(scripted.upstream.paths) <= {"/readyz", "/v1/models"}


def test_unknown_fields_reach_the_worker_unchanged(scripted: Scripted) -> None:
    extra: dict[str, Any] = {
        "top_k": 5,
        "chat_template_kwargs": {"thinking": [1, None, {"a": 1e-7}]},
        "ключ": "значение",
    }
    scripted.upstream.plays(Script([whole("ok")], content_type=JSON))
    assert scripted.post(**extra).status_code == 200
    sent = scripted.upstream.received[0][1]
    assert {name: sent[name] for name in extra} == extra


def test_a_client_cannot_write_the_controls_itself(scripted: Scripted) -> None:
    scripted.upstream.plays(Script([whole("ok")], content_type=JSON))
    response = scripted.post(vllm_xargs={"gravity": '{"trace": {"turn_id": "mine"}}', "other": 1})
    arguments = scripted.upstream.received[0][1]["vllm_xargs"]
    assert arguments["other"] == 1
    assert json.loads(arguments["gravity"])["trace"]["turn_id"] == response.headers["x-gravity-turn-id"]
