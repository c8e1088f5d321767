"""Log-probabilities against transformers' own log_softmax."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest
import torch

ReadEvents = Callable[[str], list[Any]]

PROMPT = "The best way to learn a language is"
TOLERANCE = 2e-3


@pytest.fixture(scope="module")
def expected_logprobs(reference_model: Any, tokenizer: Any) -> Callable[[list[int]], torch.Tensor]:
    """Rows of log_softmax for the positions of the tokens that follow the prompt."""

    def compute(tokens: list[int]) -> torch.Tensor:
        prompt_ids = tokenizer.encode(PROMPT)
        with torch.inference_mode():
            logits = reference_model(torch.tensor([prompt_ids + tokens])).logits[0]
        return torch.log_softmax(logits[len(prompt_ids) - 1 : -1].double(), dim=-1)

    return compute


def test_the_legacy_form_agrees_with_log_softmax(
    client: httpx.Client,
    tokenizer: Any,
    model_name: str,
    expected_logprobs: Callable[[list[int]], torch.Tensor],
) -> None:
    request = {"model": model_name, "prompt": PROMPT, "max_tokens": 8, "temperature": 0, "logprobs": 4}
    choice = client.post("/v1/completions", json=request).json()["choices"][0]
    logprobs = choice["logprobs"]
    assert "".join(logprobs["tokens"]) == choice["text"]
    assert [choice["text"][at:][:1] for at in logprobs["text_offset"]] == [t[0] for t in logprobs["tokens"]]
    tokens = tokenizer.encode(choice["text"])
    rows = expected_logprobs(tokens)
    for row, token, logprob, top in zip(
        rows, tokens, logprobs["token_logprobs"], logprobs["top_logprobs"], strict=True
    ):
        assert logprob == pytest.approx(row[token].item(), abs=TOLERANCE)
        best = row.topk(4)
        assert list(top) == [tokenizer.decode([token_id]) for token_id in best.indices.tolist()]
        assert list(top.values()) == pytest.approx(best.values.tolist(), abs=TOLERANCE)


def test_they_are_the_models_own_whatever_the_sampling_does(
    client: httpx.Client,
    tokenizer: Any,
    model_name: str,
    expected_logprobs: Callable[[list[int]], torch.Tensor],
) -> None:
    request = {
        "model": model_name,
        "prompt": PROMPT,
        "max_tokens": 8,
        "temperature": 1.6,
        "top_p": 0.9,
        "seed": 5,
        "logprobs": 0,
        "ignore_eos": True,
        "vllm_xargs": {"gravity": '{"adaptive": {}, "gravity": {"keywords": ["music"], "strength": 3}}'},
    }
    body = client.post(
        "/replay", json={"request": request, "endpoint": "/v1/completions", "tokens": None}
    ).json()
    rows = expected_logprobs(body["tokens"])
    expected = [row[token].item() for row, token in zip(rows, body["tokens"], strict=True)]
    assert body["steps"]["logprob"] == pytest.approx(expected, abs=TOLERANCE)
    choice = client.post("/v1/completions", json=request).json()["choices"][0]
    assert choice["logprobs"]["token_logprobs"] == pytest.approx(expected, abs=TOLERANCE)
    assert choice["logprobs"]["top_logprobs"] is None


def test_the_chat_form_has_bytes_and_as_many_alternatives_as_asked(
    client: httpx.Client, model_name: str
) -> None:
    request = {
        "model": model_name,
        "messages": [{"role": "user", "content": "Name a colour."}],
        "temperature": 0,
        "max_tokens": 6,
        "logprobs": True,
        "top_logprobs": 3,
    }
    choice = client.post("/v1/chat/completions", json=request).json()["choices"][0]
    content = choice["logprobs"]["content"]
    assert (
        bytes(byte for entry in content for byte in entry["bytes"]).decode() == choice["message"]["content"]
    )
    for entry in content:
        assert [len(entry["top_logprobs"])] == [3]
        assert entry["top_logprobs"][0]["token"] == entry["token"]
        assert entry["top_logprobs"][0]["logprob"] == entry["logprob"]
        ranked = [top["logprob"] for top in entry["top_logprobs"]]
        assert ranked == sorted(ranked, reverse=True)


@pytest.mark.parametrize("stop", [None, "language"])
def test_a_stream_gives_each_token_with_its_text_and_none_of_a_stop_string(
    client: httpx.Client, model_name: str, read_events: ReadEvents, stop: str | None
) -> None:
    request: dict[str, Any] = {
        "model": model_name,
        "messages": [{"role": "user", "content": f"Repeat this: {PROMPT} to speak it."}],
        "temperature": 0,
        "max_tokens": 14,
        "logprobs": True,
        "stream": True,
        "stop": stop,
    }
    *chunks, _ = read_events(client.post("/v1/chat/completions", json=request).text)
    text, seen = "", b""
    for choice in (chunk["choices"][0] for chunk in chunks):
        text += choice["delta"].get("content", "")
        for entry in (choice["logprobs"] or {"content": []})["content"]:
            seen += bytes(entry["bytes"])
    if stop is None:
        assert seen.decode() == text
    else:  # the token " language" reaches into the stop string, so its text is shown in part and it is not
        assert text == "The best way to learn a "
        assert seen == b"The best way to learn a"
