"""One client: sends what it is given, and judges what comes back."""

from __future__ import annotations

import asyncio
import random
from time import monotonic

import httpx
import orjson

from gateway.bench.soak.leaving import leave
from gateway.bench.soak.requests import CHAT, COMPLETIONS, MIX, REQUESTS, Request
from gateway.chaos.endings import Answer, Ending, read_stream, take_whole
from gateway.chaos.site import Site, url_of

LONGEST_S = 900.0
"""No turn may be without an end for so long, on a machine that others use too."""
ERROR_FIELDS = {"message", "type", "param", "code"}
JSON = {"content-type": "application/json"}


async def ask_until(site: Site, draw: random.Random, end_s: float, endings: list[Ending]) -> None:
    """Ask a turn after the other until the monotonic clock says so; the same ones for the same ``draw``."""
    kinds, weights = tuple(MIX), tuple(MIX.values())
    async with httpx.AsyncClient(timeout=None) as client:
        while monotonic() < end_s:
            (kind,) = draw.choices(kinds, weights)
            # Drawn from a source of its own: how far one turn comes must not change the next one.
            endings.append(await ask(client, site, kind, random.Random(draw.random())))


async def ask(client: httpx.AsyncClient, site: Site, kind: str, draw: random.Random) -> Ending:
    """Send one turn of the kind and see how it ends."""
    request = REQUESTS[kind](draw)
    place = site.workers[0] if request.is_for_worker else site.gateways[0]
    answer, began_s = Answer(), monotonic()
    try:
        async with asyncio.timeout(LONGEST_S):
            if kind == "leaving":
                answer.detail = await leave(place.port, request, draw)
                answer.end = "left"
            else:
                await _asked(client, url_of(place), request, answer)
    except TimeoutError:
        answer.end, answer.detail = "wrong", f"no end within {LONGEST_S:.0f} s"
    except (httpx.HTTPError, OSError) as error:
        answer.end, answer.detail = "wrong", f"the connection broke: {error!r}"
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        answer.end, answer.detail = "wrong", f"what came is no answer: {error!r}"
    if answer.end == "wrong" and request.name:
        answer.detail += f" (asked with {request.name})"
    return Ending(
        *(kind, answer.end, answer.detail, place.name, answer.turn_id, began_s),
        *(monotonic(), answer.num_tokens),
    )


async def _asked(client: httpx.AsyncClient, url: str, request: Request, answer: Answer) -> None:
    async with client.stream("POST", url + request.path, content=request.content, headers=JSON) as response:
        answer.turn_id = response.headers.get("x-gravity-turn-id", "")
        if response.status_code != httpx.codes.OK:
            take_refusal(response.status_code, await response.aread(), request, answer)
            return
        if response.headers["content-type"].startswith("text/event-stream"):
            await read_stream(response, answer, request.pause_s)
        elif request.path in (CHAT, COMPLETIONS):
            take_whole(await response.aread(), answer)
    if answer.end != "answered":
        answer.end, answer.detail = "wrong", f"ended as {answer.end}: {answer.detail}"
    elif request.expected == "refused":
        answer.end, answer.detail = "wrong", "it was answered"


def take_refusal(status: int, content: bytes, request: Request, answer: Answer) -> None:
    """Take an answer that is not 200: a 4xx in OpenAI's shape, or wrong. Raises ValueError."""
    told = shape_problem(content)
    if told or not 400 <= status < 500:
        answer.detail = f"status {status}: {told or content[:200].decode(errors='replace')}"
        return
    code = orjson.loads(content)["error"]["code"]
    answer.detail = f"{status} {code}"
    may_be = request.expected != "answered" or status == httpx.codes.TOO_MANY_REQUESTS
    answer.end = "refused" if may_be else "wrong"


def shape_problem(content: bytes) -> str:
    """Return what OpenAI's shape of an error lacks; empty where it is whole. Raises ValueError."""
    parsed = orjson.loads(content)
    error = parsed.get("error") if isinstance(parsed, dict) else None
    if not isinstance(error, dict) or len(parsed) != 1:
        return "the body is no object with an error alone"
    if error.keys() != ERROR_FIELDS:
        return f"the error's fields are {', '.join(error)}"
    if not (isinstance(error["message"], str) and error["message"] and isinstance(error["type"], str)):
        return "the error's message or type is no text"
    if not isinstance(error["param"], str | None) or not isinstance(error["code"], str | None):
        return "the error's param or code is no text"
    return ""
