"""/v1/completions: every form of a prompt, n, stop, streams."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import httpx
import openai
import pytest

if TYPE_CHECKING:
    from tests.worker.server.conftest import GreedyReference

ReadEvents = Callable[[str], list[Any]]

PROMPT = "The capital of France is"
OTHER = "Water boils at"


def text_of(client: httpx.Client, **request: Any) -> str:
    body = client.post("/v1/completions", json=request).json()
    text: str = body["choices"][0]["text"]
    return text


def test_text_ids_and_lists_of_them_give_the_same(
    client: httpx.Client, tokenizer: Any, model_name: str, greedy_reference: GreedyReference
) -> None:
    ids, other_ids = tokenizer.encode(PROMPT), tokenizer.encode(OTHER)
    expected = [tokenizer.decode(tokens) for tokens in greedy_reference([ids, other_ids], 6)]
    prompts: list[Any] = [PROMPT, ids, [PROMPT, OTHER], [ids, other_ids]]
    for prompt in prompts:
        body = client.post(
            "/v1/completions",
            json={"model": model_name, "prompt": prompt, "temperature": 0, "max_tokens": 6},
        ).json()
        texts = [choice["text"] for choice in body["choices"]]
        assert texts == expected[: len(texts)]
        assert [choice["index"] for choice in body["choices"]] == list(range(len(texts)))
        lengths = [len(ids), len(other_ids)][: len(texts)]
        assert body["usage"] == {
            "prompt_tokens": sum(lengths),
            "completion_tokens": 6 * len(texts),
            "total_tokens": sum(lengths) + 6 * len(texts),
            "prompt_tokens_details": {"cached_tokens": 0},  # shorter than a block
        }


def test_sixteen_tokens_are_the_default(client: httpx.Client, model_name: str) -> None:
    body = client.post(
        "/v1/completions", json={"model": model_name, "prompt": PROMPT, "ignore_eos": True}
    ).json()
    assert body["usage"]["completion_tokens"] == 16


def test_two_samples_of_two_prompts_have_four_indices_in_order_of_the_prompts(
    client: httpx.Client, model_name: str
) -> None:
    request = {"model": model_name, "max_tokens": 6, "seed": 11, "ignore_eos": True}
    together = client.post("/v1/completions", json=request | {"prompt": [PROMPT, OTHER], "n": 2}).json()
    alone = client.post("/v1/completions", json=request | {"prompt": OTHER, "n": 2}).json()
    texts = [choice["text"] for choice in together["choices"]]
    assert len(set(texts)) == 4
    # A sample depends on the seed and its own number, not on the prompts beside it.
    assert texts[2:] == [choice["text"] for choice in alone["choices"]]


def test_a_stream_carries_the_text_and_one_finish(
    client: httpx.Client, model_name: str, read_events: ReadEvents
) -> None:
    request = {"model": model_name, "prompt": PROMPT, "temperature": 0, "max_tokens": 8}
    *chunks, done = read_events(client.post("/v1/completions", json=request | {"stream": True}).text)
    assert done == "[DONE]"
    choices = [chunk["choices"][0] for chunk in chunks]
    assert "".join(choice["text"] for choice in choices) == text_of(client, **request)
    assert [choice["finish_reason"] for choice in choices if choice["finish_reason"]] == ["length"]
    assert choices[-1]["gravity"]["num_steps"] == 8
    assert all(chunk["object"] == "text_completion" for chunk in chunks)


@pytest.mark.parametrize("as_list", [False, True])
def test_a_stop_string_ends_the_text_before_itself_and_frees_the_slot(
    client: httpx.Client, model_name: str, as_list: bool
) -> None:
    request: dict[str, Any] = {
        "model": model_name,
        "prompt": PROMPT,
        "temperature": 0,
        "max_tokens": 40,
        "ignore_eos": True,
    }
    free = text_of(client, **request)
    stop = free[9:14]
    body = client.post(
        "/v1/completions", json=request | {"stop": ["never there", stop] if as_list else stop}
    ).json()
    [choice] = body["choices"]
    assert choice["text"] == free[: free.index(stop)]
    assert choice["finish_reason"] == "stop"
    assert body["usage"]["completion_tokens"] < 40


def test_a_stop_token_ends_the_text_before_itself(
    client: httpx.Client, tokenizer: Any, model_name: str, greedy_reference: GreedyReference
) -> None:
    [tokens] = greedy_reference([tokenizer.encode(PROMPT)], 6)
    assert tokens[4] not in tokens[:4]
    body = client.post(
        "/v1/completions",
        json={
            "model": model_name,
            "prompt": PROMPT,
            "temperature": 0,
            "max_tokens": 6,
            "stop_token_ids": [tokens[4]],
        },
    ).json()
    assert body["choices"][0]["text"] == tokenizer.decode(tokens[:4])
    assert body["choices"][0]["finish_reason"] == "stop"
    assert body["usage"]["completion_tokens"] == 5


def test_the_sdk_reads_both_forms(sdk: openai.OpenAI, model_name: str) -> None:
    whole = sdk.completions.create(model=model_name, prompt=PROMPT, temperature=0, max_tokens=6)
    with sdk.completions.create(
        model=model_name, prompt=PROMPT, temperature=0, max_tokens=6, stream=True
    ) as stream:
        assert "".join(chunk.choices[0].text for chunk in stream) == whole.choices[0].text
