"""What speculation is measured on: questions with documents from a file, and open requests without any."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import orjson

from worker.engine.loading import LoadedModel

NUM_OTHERS = 2
"""Irrelevant documents that a pruned request still has."""
MAX_PROMPT_TOKENS = 1_500
OPEN_REQUESTS = (
    "Write a short story about a baker who can hear bread think.",
    "Describe a railway station at four in the morning.",
    "Explain to a child how a sailing boat moves against the wind.",
    "Write a poem about a key without a lock.",
    "Give me advice for my first winter in the north.",
    "What would change if people slept only two hours a night?",
    "Write a letter to the person who will live in my house in a hundred years.",
    "Invent a sport that is played on stairs.",
    "Describe the sound of snow to someone who has never heard it.",
    "Compare a library with a garden.",
    "Write a dialogue between a river and a bridge.",
    "How do I begin to draw if I believe that I cannot?",
    "Tell the legend of the island that moves.",
    "Suggest five names for a bookshop by the sea and explain them.",
    "Write a speech for a village that gets its first tram.",
    "What makes a journey a good one?",
    "Write the first page of a detective novel set in a lighthouse.",
    "Describe the last day of a travelling circus.",
    "Explain why we like music that makes us sad.",
    "Write a lullaby for a robot.",
    "How should one apologise to a friend?",
    "Imagine a city built in the branches of trees.",
    "Write a product description for an umbrella that predicts the weather.",
    "Tell me about a festival of lanterns that went wrong.",
    "What can a beginner learn from chess about patience?",
    "Write a diary entry of a beekeeper in spring.",
    "Describe an old map and the country that it shows.",
    "Give three reasons to learn a language that nobody speaks any more.",
    "Write a monologue of the moon.",
    "Plan a quiet Sunday for two people who have not met for years.",
)

FACTS = (
    "The lighthouse of Skerrin was begun in 1812 by Ida Brandt, finished in 1817, and is 41 metres high.",
    "The ferry Solveig was built in 1934 at the yard of Haugland & Sons and carries 180 passengers.",
    "The observatory of Ostrava Bay was opened in 1903; its first director was Petra Lund, from Vell.",
    "The market hall of Tarrow, 62 metres long, was paid for by Samuel Okoro and burnt down in 1871.",
    "The windmill of Brackwater grinds 4 tons a day; it was moved from Haugen by Olav Reyes in 1888.",
    "The library of Marnholm has 31,000 volumes, was founded by Mina Castell, and is closed on Mondays.",
    "The bridge of Port Ellery, number 417 in the register, cost 250 thousand crowns and opened in 1926.",
    "The shipyard of Vell, led by Jonas Achterberg since 1951, builds six boats a year from larch.",
)
ASKED_SHORT = "Which year is named here, and who or what is it about? Answer in one sentence."
ASKED_STRUCTURED = 'Return a JSON object with the keys "what", "place", "year", "person" and "number".'


def short_prompts(loaded: LoadedModel, count: int) -> list[tuple[int, ...]]:
    """Return at most ``count`` prompts that want a short answer about one sentence."""
    return [_prompt(loaded, f"{fact} {ASKED_SHORT}") for fact in FACTS[:count]]


def structured_prompts(loaded: LoadedModel, count: int) -> list[tuple[int, ...]]:
    """Return at most ``count`` prompts that want a sentence as a JSON object."""
    return [_prompt(loaded, f"{fact}\n{ASKED_STRUCTURED}") for fact in FACTS[:count]]


def open_prompts(loaded: LoadedModel, count: int) -> list[tuple[int, ...]]:
    """Return at most ``count`` prompts without documents."""
    return [_prompt(loaded, request) for request in OPEN_REQUESTS[:count]]


def rag_prompts(loaded: LoadedModel, data: Path, count: int) -> list[tuple[int, ...]]:
    """Return ``count`` prompts, spread evenly over the requests of a file, as they are after pruning.

    The file is that of ``gravity eval context``: JSON lines, gzipped, of ``question`` and ``documents``, each
    with ``id``, ``title``, ``text`` and ``relevant``. Raises OSError, ValueError, KeyError.
    """
    with gzip.open(data) as lines:
        requests = [orjson.loads(line) for line in lines]
    prompts = [_prompt(loaded, _question(request)) for request in requests]
    fitting = [prompt for prompt in prompts if len(prompt) <= MAX_PROMPT_TOKENS]
    stride = max(1, len(fitting) // count)
    return fitting[::stride][:count]


def _question(request: dict[str, Any]) -> str:
    others = [each for each in request["documents"] if not each["relevant"]][:NUM_OTHERS]
    kept = [each for each in request["documents"] if each["relevant"] or each in others]
    texts = [f"[{each['id']}] {each['title']}\n{each['text']}" for each in kept]
    return "\n\n".join(["Answer from these documents.", *texts, request["question"]])


def _prompt(loaded: LoadedModel, content: str) -> tuple[int, ...]:
    messages = [{"role": "user", "content": content}]
    text = loaded.tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    return tuple(loaded.tokenizer.encode(text, add_special_tokens=False))
