"""What is asked: requests of every kind, drawn from a seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

import orjson

from gateway.bench.soak import hostile
from gateway.bench.soak.hostile import MODEL
from gateway.bench.soak.site import DRAFTED, MAX_CONTEXT
from gateway.demo.corpus import DOCUMENTS, QUESTION

Expected: TypeAlias = Literal["answered", "refused", "either"]
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
LONG_TOKENS = (100, 300)
SLOW_S = 0.1
_TOPICS = ("the sea", "a bridge", "winter", "bread", "a telescope", "an island", "rain", "a clock")


@dataclass(frozen=True, slots=True)
class Request:
    """``expected``: what may become of it; a full queue may refuse any. ``name`` says what it is."""

    path: str
    content: bytes
    expected: Expected = "answered"
    name: str = ""
    pause_s: float = 0.0
    """After each piece of the answer that is read."""
    is_for_worker: bool = False
    """Sent past the gateway."""


def _chat(draw: random.Random, **fields: Any) -> Request:
    asked = f"Say something about {draw.choice(_TOPICS)} and {draw.choice(_TOPICS)}."
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": asked}],
        "max_tokens": draw.randrange(2, 24),
        "seed": draw.randrange(2**31),
        **fields,
    }
    if body.get("stream"):
        body["stream_options"] = {"include_usage": True}
    return Request(CHAT, orjson.dumps(body))


def _long(draw: random.Random) -> Request:
    """A prompt of some hundred tokens, of which the half is as others had it."""
    told = " ".join(f"In the year {year} nothing happened." for year in range(1900, 1900 + 40))
    told += " ".join(f"Then {draw.choice(_TOPICS)} was seen." for _ in range(20))
    asked = [{"role": "system", "content": told}, {"role": "user", "content": "What happened? Tell all."}]
    return _chat(draw, messages=asked, max_tokens=draw.randint(*LONG_TOKENS), stream=draw.random() < 0.5)


def _documents(draw: random.Random) -> Request:
    documents = [{"id": each.id, "text": each.text} for each in draw.sample(DOCUMENTS, 6)]
    asked = [{"role": "user", "content": QUESTION}]
    return _chat(draw, messages=asked, documents=documents, task="rag_qa", stream=draw.random() < 0.5)


def _drafted(draw: random.Random) -> Request:
    line = f"{draw.choice(_TOPICS)} is {draw.choice(_TOPICS)}, "
    asked = [{"role": "user", "content": f"Repeat ten times: {line * 6}"}]
    return _chat(draw, messages=asked, task=DRAFTED, max_tokens=48, temperature=draw.choice((0.0, 0.7)))


def _prompt(draw: random.Random) -> Request:
    prompt: Any = f"The story of {draw.choice(_TOPICS)} begins"
    if draw.random() < 0.3:
        prompt = [draw.randrange(100, 40_000) for _ in range(draw.randrange(1, 60))]
    body = {"model": MODEL, "prompt": prompt, "max_tokens": 8, "logprobs": 2, "n": draw.choice((1, 2))}
    return Request(COMPLETIONS, orjson.dumps(body))


def _slow(draw: random.Random) -> Request:
    asked = _chat(draw, stream=True, max_tokens=40, logprobs=True, top_logprobs=5)
    return Request(asked.path, asked.content, pause_s=SLOW_S)


def _too_long(draw: random.Random) -> Request:
    num_words = draw.choice((MAX_CONTEXT, 3 * MAX_CONTEXT, 50 * MAX_CONTEXT))
    if draw.random() < 0.3:
        body: dict[str, Any] = {"model": MODEL, "prompt": [7] * num_words, "max_tokens": 4}
        return Request(COMPLETIONS, orjson.dumps(body), "refused", f"{num_words} token ids")
    asked = [{"role": "user", "content": "word " * num_words}]
    body = {"model": MODEL, "messages": asked, "stream": draw.random() < 0.5}
    return Request(CHAT, orjson.dumps(body), "refused", f"{num_words} words")


def _hostile(draw: random.Random) -> Request:
    content, name = draw.choice((hostile.junk, hostile.broken))(draw)
    return Request(CHAT, content, "refused", name)


def _odd(draw: random.Random) -> Request:
    content, name = hostile.oddity(draw)
    return Request(CHAT, content, "either", name)


def _to_worker(draw: random.Random) -> Request:
    """The worker alone ignores the gateway's fields: what is junk there may be none here."""
    if draw.random() < 0.4:
        content, name = hostile.broken(draw)
        return Request(CHAT, content, "refused", name, is_for_worker=True)
    content, name = draw.choice((hostile.junk, hostile.oddity))(draw)
    return Request(CHAT, content, "either", name, is_for_worker=True)


def leaver(draw: random.Random) -> Request:
    """Return what a client asks for that will not wait for the end."""
    if draw.random() < 0.3:
        return _documents(draw)
    return _chat(draw, max_tokens=200, n=draw.choice((1, 1, 3)), stream=draw.random() < 0.6)


MIX: Mapping[str, int] = MappingProxyType(
    {
        "stream": 5,
        "whole": 3,
        "long": 2,
        "documents": 3,
        "drafted": 2,
        "choices": 2,
        "prompt": 2,
        "slow reader": 1,
        "too long": 2,
        "hostile": 6,
        "odd": 3,
        "hostile to the worker": 3,
        "leaving": 6,
    }
)
"""How many of forty turns are of each kind."""
REQUESTS: Mapping[str, Callable[[random.Random], Request]] = MappingProxyType(
    {
        "stream": lambda draw: _chat(draw, stream=True),
        "whole": _chat,
        "long": _long,
        "documents": _documents,
        "drafted": _drafted,
        "choices": lambda draw: _chat(draw, n=3, stream=draw.random() < 0.5),
        "prompt": _prompt,
        "slow reader": _slow,
        "too long": _too_long,
        "hostile": _hostile,
        "odd": _odd,
        "hostile to the worker": _to_worker,
        "leaving": leaver,
    }
)
