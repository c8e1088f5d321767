"""What nobody means: junk in known fields, JSON that is none, and oddities that are allowed."""

from __future__ import annotations

import random
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import orjson

from gateway.bench.soak.site import MAX_BODY_BYTES

MODEL = "SmolLM2-135M-Instruct"
PLAIN: Mapping[str, Any] = MappingProxyType(
    {"model": MODEL, "messages": [{"role": "user", "content": "Say a word."}], "max_tokens": 4}
)
_HUGE = 10**15
JUNK: Mapping[str, tuple[Any, ...]] = MappingProxyType(
    {
        "model": ("", 7, None, "no such model", ["a"], "x" * 10_000),
        "messages": (
            *([], {"role": "user"}, [None], [7], "hello", [{"role": "user", "content": 7}]),
            [{"role": "king", "content": "a"}],
        ),
        "max_tokens": (0, -5, 2.5, "many", True, [4]),
        "temperature": (-1, 1e308, "hot", [], True, 2.0001),
        "top_p": (0, -0.1, 1.5, "all"),
        "n": (0, -1, _HUGE, 1.5, True, "3", 10_000),
        "stop": (["a"] * 99, ["a"] * 50_000, [1], {"a": 1}, [[]], 7),
        "logit_bias": (
            *({"999999999": 100}, {"-1": 1}, {"a": 1}, {"5": 1e9}, {"5": "much"}, [5]),
            {str(number): 1 for number in range(60_000)},
        ),
        "logprobs": ("yes", 7),
        "top_logprobs": (-1, _HUGE, "20", 3.5),
        "seed": (1.5, "s", [], 2**63),
        "stream": ("yes", 1, []),
        "stream_options": ("all", {"include_usage": "yes"}),
        "documents": ("text", [7], {"a": "b"}, [{"text": 7}], [[]]),
        "task": (7, ["rag_qa"]),
        "gravity": (
            *("many", {"theme_keywords": "many"}, {"gravity_strength": 1e9}, {"no_such_field": 1}),
            *({"adaptive": {"k_min": -1}}, {"adaptive": {"k_max": _HUGE}}, {"speculation": {"mode": "all"}}),
        ),
        "frequency_penalty": (1e9, "x", -3),
        "presence_penalty": (1e9, {}, -3),
        "user": (7, []),
    }
)
"""By field: what it must not be. Each is a client's mistake, with a status that says so."""
ODDITIES: tuple[Mapping[str, Any], ...] = (
    {"no_such_field": {"deep": [1, [2, [3]]]}, "another": None},
    {"messages": [{"role": "user", "content": "\u202e\U0001f47b e\u0301 \u0000 \ufffd ~"}]},
    {"messages": [{"role": "user", "content": ""}]},
    {"max_tokens": 1, "n": 4},
    {"temperature": 2.0, "top_p": 1e-9},
    {"stop": ["", "e"], "max_tokens": 12},
    {"stop": [" ", "a", "e", "\n"], "max_tokens": 12, "stream": True},
    {"logit_bias": {str(number): -100 for number in range(250)}},
    {"logprobs": True, "top_logprobs": 20, "stream": True},
    {"seed": -1},
    {"seed": 0, "user": "u" * 5_000},
    {"documents": []},
    {"documents": ["same text"] * 60, "task": "rag_qa"},
    {"documents": [{"text": ""}, {"id": "x" * 3_000, "text": "a"}], "task": "rag_qa"},
    {"task": "no_such_task"},
    {"response_format": {"type": "text"}, "tools": []},
)
"""What looks wrong and may be answered or refused, as each part of it is read."""


def junk(draw: random.Random) -> tuple[bytes, str]:
    """Return a body with one or two mistakes, and their names."""
    names = draw.sample(sorted(JUNK), draw.choice((1, 1, 2)))
    body = {**PLAIN, **{name: draw.choice(JUNK[name]) for name in names}}
    if "top_logprobs" in names:
        body.setdefault("logprobs", True)
    return orjson.dumps(body), "+".join(names)


def oddity(draw: random.Random) -> tuple[bytes, str]:
    """Return a body that is odd, and which field makes it so."""
    odd = draw.choice(ODDITIES)
    return orjson.dumps({**PLAIN, **odd}), next(iter(odd))


def broken(draw: random.Random) -> tuple[bytes, str]:
    """Return bytes that are no JSON, or none that may be read, and what is wrong with them."""
    name = draw.choice(tuple(_BROKEN))
    return _BROKEN[name], name


def _with(value: bytes) -> bytes:
    return orjson.dumps(dict(PLAIN))[:-1] + b',"temperature":' + value + b"}"


def _broken() -> dict[str, bytes]:
    good = orjson.dumps(dict(PLAIN))
    middle = len(good) // 2
    return {
        "NaN": _with(b"NaN"),
        "Infinity": _with(b"-Infinity"),
        "1e999": _with(b"1e999"),
        "5,000 digits": _with(b"9" * 5_000),
        "depth of 5,000": _with(b"[" * 5_000 + b"]" * 5_000),
        "depth of 100,000": b"[" * 100_000,
        "cut off": good[:middle],
        "twice": good + good,
        "bad UTF-8": good.replace(b"word", b"w\xff\xfed"),
        "lone surrogate": good.replace(b"word", b"\\ud800"),
        "UTF-16": good.decode().encode("utf-16"),
        "empty": b"",
        "null": b"null",
        "a list": b"[" + good + b"]",
        "a number": b"7",
        "zero bytes": b"\x00" * 100,
        "too large": good[:-1] + b',"x":"' + b"x" * MAX_BODY_BYTES + b'"}',
    }


_BROKEN: Mapping[str, bytes] = MappingProxyType(_broken())
