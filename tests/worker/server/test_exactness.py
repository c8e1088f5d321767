"""What the server answers is what the model says: against transformers, and alone against in a crowd."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import httpx

if TYPE_CHECKING:
    from tests.worker.server.conftest import GreedyReference

NUM_TOKENS = 8

TOPICS = [
    "Rain",
    "The history of the printing press is",
    "def fibonacci(n):\n    ",
    "Once upon a time, in a small village by the sea, there lived",
    "The chemical formula of water is",
    '{"name": "Ada", "born":',
    "In 1969, the first humans",
    "A good bread needs flour, water, salt and",
    "Photosynthesis turns light into",
    "The three primary colours are",
    "Dear Sir or Madam,\n\nI am writing to",
    "SELECT name FROM users WHERE",
    "The quick brown fox",
    "Newton's second law says that force equals",
    "My favourite season is autumn because the leaves",
    "1, 1, 2, 3, 5, 8,",
    "The heart pumps blood through",
    "To be, or not to be,",
    "Paris, London, Rome and",
    "A triangle has three sides and",
    "The recipe is simple. " * 12 + "First,",
    "He opened the door slowly. " * 30 + "Behind it",
]


async def complete(client: httpx.AsyncClient, request: dict[str, Any]) -> dict[str, Any]:
    response = await client.post("/v1/completions", json=request)
    assert response.status_code == 200, response.text
    choice: dict[str, Any] = response.json()["choices"][0]
    return choice


async def test_greedy_answers_to_22_concurrent_prompts_equal_transformers(
    async_client: httpx.AsyncClient, tokenizer: Any, model_name: str, greedy_reference: GreedyReference
) -> None:
    requests = [
        {"model": model_name, "prompt": topic, "temperature": 0, "max_tokens": NUM_TOKENS, "logprobs": 0}
        for topic in TOPICS
    ]
    choices = await asyncio.gather(*(complete(async_client, request) for request in requests))
    prompts = [tokenizer.encode(topic) for topic in TOPICS]
    *short, long, longest = prompts
    references = [
        *greedy_reference(short, NUM_TOKENS),
        *greedy_reference([long], NUM_TOKENS),
        *greedy_reference([longest], NUM_TOKENS),
    ]
    for topic, expected, choice in zip(TOPICS, references, choices, strict=True):
        assert choice["text"] == tokenizer.decode(expected), topic
        assert choice["logprobs"]["tokens"] == [tokenizer.decode([token]) for token in expected], topic


def variants(model: str) -> list[dict[str, Any]]:
    """Requests of every kind: greedy and seeded, with controls and without."""
    adaptive = {"adaptive": {"k_min": 2, "k_max": 30, "smoothing": 0.5}}
    gravity = {"gravity": {"strength": 3.0, "keywords": ["ocean", "ship"], "penalize": ["king"]}}
    temperature = {"temperature": {"mode": "feedback", "target_nats": 1.0, "gain": 0.5}}
    controls: list[dict[str, Any] | None] = [None, adaptive, gravity, temperature, adaptive | gravity]
    requests: list[dict[str, Any]] = []
    for number, control in enumerate(controls):
        for sampling in ({"temperature": 0}, {"temperature": 0.9, "seed": 40 + number, "top_p": 0.95}):
            request = {
                "model": model,
                "prompt": TOPICS[3],
                "max_tokens": NUM_TOKENS,
                "logprobs": 0,
                "ignore_eos": True,
                **sampling,
            }
            if control is not None:
                request["vllm_xargs"] = {"gravity": json.dumps(control)}
            requests.append(request)
    return requests


async def test_different_controls_and_none_in_one_batch_give_what_each_gives_alone(
    async_client: httpx.AsyncClient, model_name: str
) -> None:
    requests = variants(model_name)
    alone = [await complete(async_client, request) for request in requests]
    together = await asyncio.gather(*(complete(async_client, request) for request in requests))
    for one, other in zip(alone, together, strict=True):
        assert other["text"] == one["text"]
        assert other["gravity"]["mean_k"] == one["gravity"]["mean_k"]
        assert abs(other["gravity"]["mean_entropy_nats"] - one["gravity"]["mean_entropy_nats"]) < 1e-3
    assert len({choice["text"] for choice in alone}) >= 6, "the controls made no difference"
