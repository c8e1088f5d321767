"""Public reports about sampling beside others, as requests to the real worker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import httpx
import pytest

if TYPE_CHECKING:
    from tests.conftest import RunningProcess

MODEL = "SmolLM2-135M-Instruct"
CHAT = "/v1/chat/completions"


@pytest.fixture
def client(worker_server: RunningProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=worker_server.url, timeout=60) as client:
        yield client


def chat(**fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": "Tell me of the sea."}]
    return {"model": MODEL, "messages": messages, "temperature": 1.2, "max_tokens": 6, **fields}


def answer_of(client: httpx.Client, **fields: Any) -> dict[str, Any]:
    (choice,) = client.post(CHAT, json=chat(**fields)).json()["choices"]
    return {"text": choice["message"]["content"], "seed": choice["gravity"]["seed"]}


def test_vllm_51226_a_seed_holds_in_a_batch_with_a_request_that_has_none(client: httpx.Client) -> None:
    alone = answer_of(client, seed=1234)
    assert alone["seed"] == 1234
    with client.stream("POST", CHAT, json=chat(stream=True, max_tokens=900, ignore_eos=True)) as neighbour:
        pieces = neighbour.iter_bytes()  # kept: a collected iterator closes the connection
        assert next(pieces)
        beside = [answer_of(client, seed=1234) for _ in range(2)]
        unseeded = [answer_of(client) for _ in range(2)]
        assert next(pieces)  # it has been in the batch all the while
    assert beside == [alone, alone]
    # And the seed is not left behind for those that have none.
    assert len({alone["text"], *(each["text"] for each in unseeded)}) == 3
    assert len({1234, *(each["seed"] for each in unseeded)}) == 3


def test_sglang_40076_a_million_top_logprobs_leave_a_running_stream_alone(client: httpx.Client) -> None:
    with client.stream("POST", CHAT, json=chat(stream=True, max_tokens=12, ignore_eos=True)) as stream:
        pieces = stream.iter_bytes()
        first = next(pieces)
        refused = client.post(CHAT, json=chat(logprobs=True, top_logprobs=1_000_000))
        content = first + b"".join(pieces)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "top_logprobs")
    assert b'"finish_reason":"length"' in content
    assert b'"num_steps":12' in content
    assert content.endswith(b"data: [DONE]\n\n")
