"""/tokenize against the tokenizer itself."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

TEXTS = ["", "Hello world", "Grüße aus Köln 🚀", "日本語のテキスト", "x" * 500]


def test_one_prompt_gives_its_ids(client: httpx.Client, tokenizer: Any, model_name: str) -> None:
    for text in TEXTS:
        body = client.post("/tokenize", json={"model": model_name, "prompt": text}).json()
        assert body["tokens"] == tokenizer.encode(text)
        assert body["count"] == len(body["tokens"])
        assert body["max_model_len"] == 1024


def test_messages_are_rendered_first(client: httpx.Client, tokenizer: Any) -> None:
    messages = [{"role": "user", "content": "Hi"}]
    for generation in (True, False):
        body = client.post(
            "/tokenize", json={"messages": messages, "add_generation_prompt": generation}
        ).json()
        expected = tokenizer.apply_chat_template(
            messages, add_generation_prompt=generation, return_dict=False
        )
        assert body["tokens"] == expected


def test_many_prompts_are_counted_at_once(client: httpx.Client, tokenizer: Any) -> None:
    body = client.post("/tokenize", json={"prompts": TEXTS}).json()
    assert body == {
        "counts": [len(tokenizer.encode(text, add_special_tokens=False)) for text in TEXTS],
        "max_model_len": 1024,
    }
    assert client.post("/tokenize", json={"prompts": []}).json()["counts"] == []


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        ({}, 400, "prompt"),
        ({"prompt": "a", "prompts": ["b"]}, 400, "prompts"),
        ({"prompts": ["a", 1]}, 400, "prompts"),
        ({"prompt": "a", "model": "other"}, 404, "model"),
    ],
)
def test_what_is_wrong_is_said(client: httpx.Client, body: Any, status: int, param: str) -> None:
    response = client.post("/tokenize", json=body)
    assert response.status_code == status
    assert response.json()["error"]["param"] == param
