"""Streams that broke in other servers, as the worker sends them. Tests are named after the public reports."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import httpx
import openai
import pytest

if TYPE_CHECKING:
    from tests.conftest import RunningProcess

MODEL = "SmolLM2-135M-Instruct"
CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"


@pytest.fixture
def client(worker_server: RunningProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=worker_server.url, timeout=60) as client:
        yield client


def chat(content: str = "Say hello.", **fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": content}]
    return {"model": MODEL, "messages": messages, "temperature": 0, "max_tokens": 6, **fields}


def events_of(response: httpx.Response) -> list[dict[str, Any]]:
    """The events before [DONE], cut at blank lines of the raw bytes."""
    assert response.status_code == 200, response.text
    frames = [frame for frame in response.content.split(b"\n\n") if frame]
    assert frames[-1] == b"data: [DONE]"
    return [json.loads(frame.removeprefix(b"data: ")) for frame in frames[:-1]]


def finishes_of(events: list[dict[str, Any]]) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for event in events:
        for choice in event["choices"]:
            if choice["finish_reason"] is not None:
                found.setdefault(choice["index"], []).append(choice["finish_reason"])
    return found


def text_of(events: list[dict[str, Any]], index: int = 0) -> str:
    return "".join(
        choice["delta"].get("content", "") if "delta" in choice else choice["text"]
        for event in events
        for choice in event["choices"]
        if choice["index"] == index
    )


@pytest.mark.parametrize("options", [{}, None, {"include_usage": False}, {"include_usage": None}])
def test_vllm_36379_empty_stream_options_give_no_usage_chunk(client: httpx.Client, options: Any) -> None:
    events = events_of(client.post(CHAT, json=chat(stream=True, stream_options=options)))
    assert all(len(event["choices"]) == 1 for event in events)
    assert all("usage" not in event for event in events)


def test_litellm_25410_usage_comes_after_the_finish_in_a_chunk_without_choices(client: httpx.Client) -> None:
    options = {"include_usage": True}
    events = events_of(client.post(CHAT, json=chat(stream=True, stream_options=options)))
    assert finishes_of(events[-2:-1]) == {0: ["length"]}
    assert events[-1]["choices"] == []
    assert events[-1]["usage"]["completion_tokens"] == 6


@pytest.mark.parametrize("stream", [True, False])
def test_vllm_mlx_628_an_answer_that_ends_by_eos_finishes_once_with_stop(
    client: httpx.Client, stream: bool
) -> None:
    request = chat("What is the capital of France? One word.", max_tokens=60, stream=stream)
    response = client.post(CHAT, json=request)
    if stream:
        events = events_of(response)
        assert finishes_of(events) == {0: ["stop"]}
        text, num_steps = text_of(events), events[-1]["choices"][0]["gravity"]["num_steps"]
    else:
        [choice] = response.json()["choices"]
        assert choice["finish_reason"] == "stop"
        text, num_steps = choice["message"]["content"], choice["gravity"]["num_steps"]
    assert "Paris" in text
    assert "<|im_end|>" not in text
    assert num_steps < 60


@pytest.mark.parametrize("max_tokens", [1, 2, 5])
@pytest.mark.parametrize("stream", [True, False])
def test_mlx_vlm_1215_a_small_max_tokens_finishes_with_length(
    client: httpx.Client, max_tokens: int, stream: bool
) -> None:
    response = client.post(CHAT, json=chat(max_tokens=max_tokens, stream=stream))
    if stream:
        assert finishes_of(events_of(response)) == {0: ["length"]}
    else:
        assert response.json()["choices"][0]["finish_reason"] == "length"
        assert response.json()["usage"]["completion_tokens"] == max_tokens


def test_llama_cpp_20226_each_of_three_streamed_choices_gets_its_own_finish(client: httpx.Client) -> None:
    request = chat(n=3, stream=True, temperature=1.0, seed=1, max_tokens=8)
    events = events_of(client.post(CHAT, json=request))
    finishes = finishes_of(events)
    assert sorted(finishes) == [0, 1, 2]
    assert all(len(reasons) == 1 for reasons in finishes.values())
    roles = [c["index"] for e in events for c in e["choices"] if c["delta"].get("role") == "assistant"]
    assert sorted(roles) == [0, 1, 2]
    whole = client.post(CHAT, json=request | {"stream": False}).json()
    assert [text_of(events, index) for index in range(3)] == [
        choice["message"]["content"] for choice in whole["choices"]
    ]


def test_mlc_llm_1142_a_token_boundary_inside_an_emoji_breaks_no_character(
    client: httpx.Client, tokenizer: Any
) -> None:
    # The emoji takes several tokens; with them alone to choose from, the model spells it again and again.
    emoji = "🚀"
    token_ids = tokenizer.encode(emoji, add_special_tokens=False)
    assert len(token_ids) > 1
    request = {
        "model": MODEL,
        "prompt": emoji * 20,
        "temperature": 0,
        "max_tokens": 5 * len(token_ids),
        "logit_bias": {str(token_id): 100 for token_id in token_ids},
        "stream": True,
    }
    events = events_of(client.post(TEXT, json=request))
    assert text_of(events) == emoji * 5
    assert all(event["choices"][0]["text"] in ("", emoji) for event in events)
    cut = events_of(client.post(TEXT, json=request | {"max_tokens": 5 * len(token_ids) - 1}))
    assert text_of(cut) == emoji * 4, "an unfinished character is no text"
    assert finishes_of(cut) == {0: ["length"]}


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\u0085"])
def test_httpx_sse_34_a_line_separator_inside_a_string_splits_no_event(
    client: httpx.Client, tokenizer: Any, separator: str
) -> None:
    token_ids = tokenizer.encode(separator, add_special_tokens=False)
    request = {
        "model": MODEL,
        "prompt": separator * 20,
        "temperature": 0,
        "max_tokens": 12 * len(token_ids),
        "logit_bias": {str(token_id): 100 for token_id in token_ids},
        "frequency_penalty": 2,  # so that all bytes of the character get their turn
        "stream": True,
    }
    response = client.post(TEXT, json=request)
    assert separator in text_of(events_of(response))
    # Even a client that splits lines at every Unicode line end gets whole events.
    lines = [line for line in response.content.decode().splitlines() if line]
    assert all(line.startswith("data: ") for line in lines)
    assert [json.loads(line[6:]) for line in lines[:-1]] == events_of(response)


def test_vllm_3574_a_stop_string_over_several_tokens_leaks_nothing(
    client: httpx.Client, tokenizer: Any
) -> None:
    request = chat("Write the alphabet in capital letters.", max_tokens=40, stream=True, ignore_eos=True)
    free = text_of(events_of(client.post(CHAT, json=request)))
    # A stop string that begins in the middle of one token and ends in the middle of another.
    start = len(free) // 3
    stop = free[start : start + 9]
    assert free.index(stop) > 0
    assert len(tokenizer.encode(stop, add_special_tokens=False)) > 1
    events = events_of(client.post(CHAT, json=request | {"stop": [stop]}))
    assert text_of(events) == free[: free.index(stop)]
    assert finishes_of(events) == {0: ["stop"]}


def test_vllm_3574_what_only_began_like_a_stop_string_is_released(client: httpx.Client) -> None:
    request = chat("Write the alphabet in capital letters.", max_tokens=20, stream=True)
    free = text_of(events_of(client.post(CHAT, json=request)))
    stops = [free[2:8] + "\u0000never", free[-3:] + "\u0000never"]
    assert text_of(events_of(client.post(CHAT, json=request | {"stop": stops}))) == free


async def test_preloop_121_what_goes_wrong_before_the_first_event_has_a_status_of_its_own(
    worker_server: RunningProcess,
) -> None:
    async with httpx.AsyncClient(base_url=worker_server.url, timeout=60) as client:
        too_long = client.post(CHAT, json=chat("word " * 2000, stream=True))
        unknown = client.post(CHAT, json=chat(model="other", stream=True))
        bad_controls = client.post(CHAT, json=chat(stream=True, vllm_xargs={"gravity": "{"}))
        responses = await asyncio.gather(too_long, unknown, bad_controls)
    assert [response.status_code for response in responses] == [400, 404, 400]
    assert all(response.headers["content-type"] == "application/json" for response in responses)


def test_preloop_121_the_sdk_raises_instead_of_giving_an_empty_stream(worker_server: RunningProcess) -> None:
    with (
        openai.OpenAI(base_url=f"{worker_server.url}/v1", api_key="none", max_retries=0) as sdk,
        pytest.raises(openai.BadRequestError) as raised,
    ):
        sdk.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "word " * 2000}], stream=True
        )
    assert raised.value.code == "context_length_exceeded"
