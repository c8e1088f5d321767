"""The same for the worker: bodies that nobody means, and none is a fault of its own or ends the engine."""

from __future__ import annotations

import json
from urllib.parse import quote

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import RunningProcess
from tests.hostile.bodies import FUZZ, Fields, bodies_of
from tests.hostile.judge import TIMEOUT_S, check_error_shape
from worker.models import BUNDLED_MODEL

CHAT: Fields = {
    "model": BUNDLED_MODEL,
    "messages": [{"role": "user", "content": "hello"}],
    "max_tokens": 1,
    "stream": False,
    "n": 1,
    "temperature": 0.5,
    "top_p": 0.5,
    "top_k": 3,
    "min_p": 0.5,
    "stop": ["a"],
    "stop_token_ids": [7],
    "logit_bias": {"5": 1.0},
    "logprobs": True,
    "top_logprobs": 2,
    "repetition_penalty": 1.0,
    "vllm_xargs": {"gravity": json.dumps({"core_semantics": ["a"], "adaptive": {"k_max": 5}})},
    "tools": [],
    "response_format": {"type": "text"},
}
GENERATING = ("/v1/chat/completions", "/v1/completions")
FIELDS: dict[str, Fields] = {
    "/v1/chat/completions": CHAT,
    "/v1/completions": {
        "model": BUNDLED_MODEL,
        "prompt": [7, 8],
        "max_tokens": 1,
        "logprobs": 2,
        "echo": False,
    },
    "/tokenize": {
        "prompts": ["hello"],
        "prompt": "hello",
        "model": BUNDLED_MODEL,
        "add_special_tokens": True,
    },
    "/replay": {
        "request": CHAT,
        "endpoint": "/v1/chat/completions",
        "choice": 0,
        "tokens": [7],
        "num_top": 2,
    },
}


@pytest.mark.parametrize("path", FIELDS)
def test_no_body_is_answered_with_a_fault_of_the_workers(worker_server: RunningProcess, path: str) -> None:
    with httpx.Client(base_url=worker_server.url, timeout=TIMEOUT_S) as client:

        @settings(FUZZ, max_examples=50)
        @given(bodies_of(FIELDS[path], ("max_tokens",) if path in GENERATING else ()))
        def attack(body: bytes) -> None:
            answer = client.post(path, content=body)
            assert answer.status_code < 500, answer.text
            if answer.status_code >= 400:
                check_error_shape(answer)

        attack()
        assert client.get("/readyz").status_code == 200


@settings(FUZZ, max_examples=30)
@given(
    st.sampled_from(("GET", "POST", "PUT", "DELETE", "OPTIONS", "HEAD")),
    st.sampled_from(
        ("/", "/v1/models/", "/v1/chat/completions/", "/metrics/x", "//", "/replay?x=", "/livez/")
    ),
    st.text(st.characters(codec="utf-8"), max_size=8),
)
def test_no_path_is_answered_with_a_fault_of_the_workers(
    worker_server: RunningProcess, method: str, path: str, rest: str
) -> None:
    answer = httpx.request(method, f"{worker_server.url}{path}{quote(rest)}", timeout=TIMEOUT_S)
    assert answer.status_code < 500
    assert "location" not in answer.headers
    if answer.status_code >= 400 and method != "HEAD":
        check_error_shape(answer)
