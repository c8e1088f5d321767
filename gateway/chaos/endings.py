"""How turns ended, and what is read of an answer."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import httpx
import orjson

from gateway.pool.events import EventParser

End: TypeAlias = Literal["answered", "refused", "error event", "left", "cut off", "wrong"]


@dataclass(frozen=True, slots=True)
class Ending:
    """How one turn ended. ``num_tokens`` is None where no usage came; moments are monotonic seconds."""

    kind: str
    end: End
    detail: str
    gateway: str
    turn_id: str
    began_s: float
    ended_s: float
    num_tokens: int | None = None


@dataclass(slots=True)
class Answer:
    """What has come so far."""

    turn_id: str = ""
    end: End = "wrong"
    detail: str = "nothing came"
    num_tokens: int | None = None


async def read_stream(response: httpx.Response, answer: Answer, pause_s: float) -> None:
    """Read to the end, ``pause_s`` after each piece. Raises httpx.HTTPError, ValueError, LookupError."""
    parser, has_finish, is_done, code = EventParser(), False, False, ""
    answer.detail = "the stream broke off without an error event or its [DONE]"
    async for piece in response.aiter_bytes():
        await asyncio.sleep(pause_s)
        for data in parser.feed(piece):
            if data == b"[DONE]":
                is_done = True
                continue
            chunk = orjson.loads(data)
            if error := chunk.get("error"):
                code = str(error["code"])
            has_finish |= any(choice.get("finish_reason") for choice in chunk.get("choices", ()))
            if usage := chunk.get("usage"):
                answer.num_tokens = usage["completion_tokens"]
    if is_done and code:
        answer.end, answer.detail = "error event", code
    elif is_done and has_finish:
        answer.end, answer.detail = "answered", ""


def take_whole(content: bytes, answer: Answer) -> None:
    """Take an answer that was not streamed. Raises ValueError, LookupError, TypeError where it is none."""
    parsed = orjson.loads(content)
    answer.num_tokens = parsed["usage"]["completion_tokens"]
    if all(choice["finish_reason"] for choice in parsed["choices"]):
        answer.end, answer.detail = "answered", ""


def ends_by_kind(endings: Sequence[Ending], kinds: Iterable[str]) -> dict[str, dict[str, int]]:
    """Return how many turns of each kind ended in which way."""
    return {kind: dict(Counter(each.end for each in endings if each.kind == kind)) for kind in kinds}


def reasons_of(endings: Sequence[Ending]) -> dict[str, int]:
    """Return how often each reason was given, the most frequent first."""
    return dict(Counter(f"{each.end}: {each.detail}" for each in endings if each.detail).most_common())
