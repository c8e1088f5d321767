"""What dropping blocks is measured on: long texts of real passages, with made-up facts hidden in them."""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import orjson

FACTS = (
    (
        "the secret password of the Arnholt lighthouse is",
        "What is the secret password of the Arnholt lighthouse?",
    ),
    ("the favourite thing of Captain Brennik is his", "What is the favourite thing of Captain Brennik?"),
    ("the boat that sails to Velsund island is called", "What is the boat to Velsund island called?"),
    ("the bakers of Karstad make a bread that tastes of", "What does the bread of Karstad taste of?"),
    ("the door of the Molde archive is painted with a", "What is painted on the door of the Molde archive?"),
)
"""Beginnings of made-up sentences, and what asks for their last words."""
WORDS = ("purple", "copper", "tiger", "garden", "winter", "silver", "river", "candle", "marble", "lemon")
DEPTHS = (0.1, 0.3, 0.5, 0.7, 0.9)

Encode: TypeAlias = Callable[[str], list[int]]


@dataclass(frozen=True, slots=True)
class Needle:
    """A fact that no other text tells, and how it is asked for."""

    depth: float
    """Where it stands, as a share of the context."""
    question_ids: tuple[int, ...]
    """Read with the context."""
    opening_ids: tuple[int, ...]
    """The beginning of the answer, up to the word that is asked for."""
    word_id: int


@dataclass(frozen=True, slots=True)
class Context:
    """One text."""

    token_ids: tuple[int, ...]
    continuation_ids: tuple[int, ...]
    needles: tuple[Needle, ...]
    candidate_ids: tuple[int, ...]
    """The words that a needle may hold; those of the others stand in the same text."""


@dataclass(frozen=True, slots=True)
class ContextPlan:
    """Which texts are made."""

    data: Path
    """JSON lines, gzipped, of ``documents`` with ``title`` and ``text``."""
    num_tokens: int
    num_continued: int
    count: int


def make_contexts(tokenizer: Any, plan: ContextPlan) -> Iterator[Context]:
    """Yield texts of passages that none of the others has. Raises OSError, ValueError, KeyError.

    ValueError where the file has too little text.
    """
    with gzip.open(plan.data) as lines:
        requests = [orjson.loads(line) for line in lines]
    random.Random(0).shuffle(requests)
    passages = (
        f"{each['title']}\n{each['text']}\n\n" for request in requests for each in request["documents"]
    )
    encode = partial(tokenizer.encode, add_special_tokens=False)
    candidate_ids = tuple(_word_id(encode, word) for word in WORDS)
    for number in range(plan.count):
        chance = random.Random(f"{plan.num_tokens}/{number}")
        facts = chance.sample(FACTS, len(DEPTHS))
        words = chance.sample(range(len(WORDS)), len(DEPTHS))
        sentences = [
            encode(f"{fact[0].upper()}{fact[1:]} {WORDS[word]}.\n\n")
            for (fact, _), word in zip(facts, words, strict=True)
        ]
        needles = [
            Needle(
                depth,
                tuple(encode(f"\n\nQuestion: {question}\nAnswer: According to the text,")),
                tuple(encode(f" {fact}")),
                candidate_ids[word],
            )
            for depth, (fact, question), word in zip(DEPTHS, facts, words, strict=True)
        ]
        ids = _filled(encode, passages, sentences, plan)
        text, continuation = ids[: plan.num_tokens], ids[plan.num_tokens :]
        yield Context(tuple(text), tuple(continuation), tuple(needles), candidate_ids)


def _word_id(encode: Encode, word: str) -> int:
    ids = encode(f" {word}")
    if len(ids) != 1:
        raise ValueError(f"this tokenizer splits {word!r}; its first token would not tell the words apart")
    return ids[0]


def _filled(
    encode: Encode, passages: Iterator[str], sentences: list[list[int]], plan: ContextPlan
) -> list[int]:
    """Return the context and its continuation: whole passages, and each sentence at its depth."""
    ids: list[int] = []
    waiting = list(zip(DEPTHS, sentences, strict=True))
    while len(ids) < plan.num_tokens + plan.num_continued:
        passage = next(passages, None)
        if passage is None:
            raise ValueError(f"the file has too little text for {plan.count} contexts")
        if waiting and len(ids) >= waiting[0][0] * plan.num_tokens:
            ids += waiting.pop(0)[1]
        ids += encode(passage)
    return ids[: plan.num_tokens + plan.num_continued]
