"""Asks the gateway over HTTP as any client would: an OpenAI chat request, answered as a stream."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx
import orjson

from gateway.errors import DemoError
from gateway.pool.events import EventParser

TIMEOUT = httpx.Timeout(5.0, read=120.0)


@dataclass(slots=True)
class Answer:
    """What came back. Times in seconds from the moment the request was sent."""

    text: str = ""
    tokens: list[str] = field(default_factory=list)
    first_gravity: dict[str, Any] = field(default_factory=dict)
    """The ``gravity`` object of the first chunk: lane, task, config, documents."""
    last_gravity: dict[str, Any] = field(default_factory=dict)
    """That of the last chunk: what was measured."""
    usage: dict[str, Any] = field(default_factory=dict)
    finish_reason: str = ""
    time_to_first_token_s: float = 0.0
    total_s: float = 0.0

    @property
    def turn_id(self) -> str:
        return str(self.first_gravity["turn_id"])


OnGravity = Callable[[Mapping[str, Any]], None]
OnText = Callable[[str], None]


async def ask(
    client: httpx.AsyncClient,
    body: Mapping[str, Any],
    headers: Mapping[str, str],
    on_gravity: OnGravity,
    on_text: OnText,
) -> Answer:
    """Stream one answer; ``on_gravity`` gets the first chunk's report, ``on_text`` each piece of text.

    Raises DemoError where the gateway refuses, or the stream ends with an error or without its end.
    """
    answer = Answer()
    parser = EventParser()
    started = time.perf_counter()
    is_done = False
    async with client.stream("POST", "/v1/chat/completions", json=body, headers=headers) as response:
        if response.status_code != httpx.codes.OK:
            text = (await response.aread()).decode(errors="replace")
            raise DemoError(f"the gateway answered {response.status_code}: {text}")
        async for piece in response.aiter_bytes():
            for data in parser.feed(piece):
                if data == b"[DONE]":
                    is_done = True
                    continue
                text = _take(answer, orjson.loads(data), on_gravity)
                if not text:
                    continue
                if not answer.text:
                    answer.time_to_first_token_s = time.perf_counter() - started
                answer.text += text
                on_text(text)
    answer.total_s = time.perf_counter() - started
    if not is_done or not answer.finish_reason:
        raise DemoError("the stream ended without its end: no finish_reason or no [DONE]")
    return answer


def _take(answer: Answer, chunk: Mapping[str, Any], on_gravity: OnGravity) -> str:
    """Put one chunk's parts into the answer and return its text."""
    if "error" in chunk:
        raise DemoError(f"the stream ended with an error: {chunk['error'].get('message')}")
    if gravity := chunk.get("gravity"):
        if not answer.first_gravity:
            answer.first_gravity = dict(gravity)
            on_gravity(gravity)
        else:
            answer.last_gravity |= gravity
    if usage := chunk.get("usage"):
        answer.usage = usage
    text = ""
    for choice in chunk.get("choices", ()):
        answer.finish_reason = choice.get("finish_reason") or answer.finish_reason
        text += choice.get("delta", {}).get("content") or ""
        logprobs = choice.get("logprobs") or {}
        answer.tokens += [entry["token"] for entry in logprobs.get("content") or ()]
    return text
