"""Clients of a run, and how each of their turns ended."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from time import monotonic
from typing import Any, Literal, TypeAlias

import httpx
import orjson

from gateway.chaos.endings import Answer, Ending, read_stream, take_whole
from gateway.chaos.place import Place
from gateway.chaos.site import BEGIN_S, MAX_CONTEXT, url_of
from gateway.demo.corpus import DOCUMENTS, QUESTION

Kind: TypeAlias = Literal["stream", "whole", "documents", "leaving", "too long", "hostile", "slow reader"]

MIX: Mapping[Kind, int] = {
    "stream": 6,
    "whole": 3,
    "documents": 3,
    "leaving": 4,
    "too long": 1,
    "hostile": 2,
    "slow reader": 1,
}
"""How many of twenty turns are of each kind."""
AWAY = (429, 502, 503, 504)
"""What may be said to anybody while something is away."""
PATH = "/v1/chat/completions"
MISTAKES: tuple[Kind, ...] = ("too long", "hostile")
SLOW_S = 0.05
LONGEST_STAY_S = 2.0
LONGEST_TOKENS = 200
"""No answer that is asked for is longer."""
ANSWER_S = 2 * BEGIN_S
"""No turn may be without an end for so long: its answer's begin, and as long again for the rest of it."""
HOSTILE: tuple[dict[str, Any], ...] = (
    {"temperature": -1},
    {"top_p": "all"},
    {"n": 10**9},
    {"logit_bias": {"999999999": 100}},
    {"messages": {"role": "user"}},
    {"max_tokens": -5},
    {"stop": ["a"] * 99},
    {"gravity": {"theme_keywords": "many"}},
)


async def ask(client: httpx.AsyncClient, gateway: Place, kind: Kind, draw: random.Random) -> Ending:
    """Send one turn and see how it ends."""
    answer, began_s = Answer(), monotonic()
    try:
        async with asyncio.timeout(ANSWER_S):
            if kind == "leaving":
                await _leave(client, gateway, draw, answer)
            else:
                await _asked(client, gateway, body_of(kind, draw), kind, answer)
    except TimeoutError:
        answer.end, answer.detail = "wrong", f"no end within {ANSWER_S:.0f} s"
    except httpx.TransportError as error:
        answer.end, answer.detail = "cut off", type(error).__name__
    except (httpx.HTTPError, ValueError, LookupError, TypeError, AttributeError) as error:
        answer.end, answer.detail = "wrong", f"what came is no answer: {error!r}"
    ended_s = monotonic()
    if answer.end == "cut off" and not gateway.was_killed_between(began_s, ended_s):
        answer.end = "wrong"
    return Ending(
        kind, answer.end, answer.detail, gateway.name, answer.turn_id, began_s, ended_s, answer.num_tokens
    )


async def _asked(
    client: httpx.AsyncClient, gateway: Place, body: Mapping[str, Any], kind: Kind, answer: Answer
) -> None:
    async with client.stream("POST", url_of(gateway) + PATH, json=body) as response:
        answer.turn_id = response.headers.get("x-gravity-turn-id", "")
        if response.status_code != httpx.codes.OK:
            _take_refusal(answer, kind, response.status_code, await response.aread())
        elif body["stream"]:
            await read_stream(response, answer, SLOW_S if kind == "slow reader" else 0.0)
        else:
            take_whole(await response.aread(), answer)
    if kind in MISTAKES and answer.end == "answered":
        answer.end, answer.detail = "wrong", f"a {kind} request was answered: {sorted(body)}"


async def _leave(client: httpx.AsyncClient, gateway: Place, draw: random.Random, answer: Answer) -> None:
    """Ask, and go at some moment: before the first token, in the middle of a stream, or of a whole answer."""
    body = body_of("leaving", draw)
    try:
        async with asyncio.timeout(draw.uniform(0.05, LONGEST_STAY_S)):
            await _asked(client, gateway, body, "leaving", answer)
    except TimeoutError:
        answer.end, answer.detail = "left", ""


def _take_refusal(answer: Answer, kind: Kind, status: int, content: bytes) -> None:
    """A status with a reason; a client's own mistake must not look like the server's, and the reverse."""
    error = orjson.loads(content).get("error") or {}
    answer.detail = f"{status} {error.get('code')}"
    is_known = status in AWAY or (kind in MISTAKES and 400 <= status < 500)
    answer.end = "refused" if error.get("code") and is_known else "wrong"


def body_of(kind: Kind, draw: random.Random) -> dict[str, Any]:
    """Return a request of the kind."""
    topic = draw.choice(("the sea", "a bridge", "winter", "bread", "a telescope"))
    body: dict[str, Any] = {
        "model": "SmolLM2-135M-Instruct",
        "messages": [{"role": "user", "content": f"Say something about {topic}."}],
        "max_tokens": draw.randrange(4, 24),
        "stream": kind not in ("whole", "too long"),
        "stream_options": {"include_usage": True},
        "seed": draw.randrange(2**31),
    }
    if kind == "documents":
        documents = [{"id": each.id, "text": each.text} for each in draw.sample(DOCUMENTS, 4)]
        body |= {
            "messages": [{"role": "user", "content": QUESTION}],
            "documents": documents,
            "task": "rag_qa",
        }
    elif kind == "leaving":
        body |= {"max_tokens": LONGEST_TOKENS, "stream": draw.random() < 0.7}
    elif kind == "too long":
        body["messages"] = [{"role": "user", "content": "word " * 3 * MAX_CONTEXT}]
    elif kind == "hostile":
        body |= draw.choice(HOSTILE)
    elif kind == "slow reader":
        body |= {"max_tokens": 40, "logprobs": True, "top_logprobs": 5}
    return body
