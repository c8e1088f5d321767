"""Sends the requests of one block and notes when their tokens come."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import aiohttp
import orjson

from gateway.bench.serve.arrivals import Arrivals, poisson_times_s
from gateway.errors import CommandError

MODEL = "bench"
SILENCE_S = 600.0
_DATA = b"data:"


class Request(Protocol):
    """What can be sent."""

    @property
    def kind(self) -> str: ...

    @property
    def url(self) -> str:
        """Absolute, or the path at the address of whom all are sent to."""
        ...

    def body(self) -> bytes: ...

    def allows(self, num_tokens: int) -> bool:
        """Whether so many tokens are an answer to it."""
        ...


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as every engine gets it: token ids, greedy, and no end before ``max_tokens``."""

    kind: str
    prompt_ids: tuple[int, ...]
    max_tokens: int
    url: str = "/v1/completions"

    def body(self) -> bytes:
        return orjson.dumps(
            {
                "model": MODEL,
                "prompt": self.prompt_ids,
                "max_tokens": self.max_tokens,
                "temperature": 0.0,
                "ignore_eos": True,
                "stream": True,
                "stream_options": {"include_usage": True},
            }
        )

    def allows(self, num_tokens: int) -> bool:
        return num_tokens == self.max_tokens


@dataclass(frozen=True, slots=True)
class Answered:
    """One answer. Times in seconds since it was due, which in an open loop may be before it was sent."""

    kind: str
    num_tokens: int
    first_s: float
    total_s: float


@dataclass(frozen=True, slots=True)
class Driven:
    """What came of a block."""

    answers: tuple[Answered, ...]
    elapsed_s: float


async def drive(url: str, asked: Sequence[Request], arrivals: Arrivals, seed: tuple[int, ...]) -> Driven:
    """Send all and wait for all answers. Raises CommandError where one is refused or not of its length.

    ``url`` may be empty where all requests name their own.
    """
    timeout = aiohttp.ClientTimeout(total=None, sock_read=SILENCE_S)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(url or None, timeout=timeout, connector=connector) as session:
        began = time.perf_counter()
        try:
            if arrivals.rate_per_s is None:
                answers = await _closed(session, asked, arrivals.num_clients)
            else:
                due = poisson_times_s(arrivals.rate_per_s, len(asked), seed)
                answers = await _open(session, asked, [began + offset for offset in due])
        except* (aiohttp.ClientError, CommandError, TimeoutError) as errors:
            raise CommandError(f"{url}: {_first(errors)}") from None
        return Driven(tuple(answers), time.perf_counter() - began)


async def _closed(
    session: aiohttp.ClientSession, asked: Sequence[Request], num_clients: int
) -> list[Answered]:
    answers: list[Answered] = []
    waiting = iter(asked)

    async def client() -> None:
        for each in waiting:  # one iterator for all clients
            answer = await _answer(session, each, time.perf_counter())
            answers.append(answer)

    async with asyncio.TaskGroup() as clients:
        for _ in range(num_clients):
            clients.create_task(client())
    return answers


async def _open(
    session: aiohttp.ClientSession, asked: Sequence[Request], due_at: Sequence[float]
) -> list[Answered]:
    async def later(each: Request, at: float) -> Answered:
        await asyncio.sleep(max(0.0, at - time.perf_counter()))
        return await _answer(session, each, at)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(later(each, at)) for each, at in zip(asked, due_at, strict=True)]
    return [task.result() for task in tasks]


async def _answer(session: aiohttp.ClientSession, asked: Request, due_at: float) -> Answered:
    headers = {"content-type": "application/json"}
    first_at = last_at = 0.0
    num_tokens = 0
    async with session.post(asked.url, data=asked.body(), headers=headers) as response:
        if response.status != 200:
            raise CommandError(f"status {response.status}: {(await response.text())[:500]}")
        async for line in response.content:
            event = _event(line)
            if event is None:
                continue
            if event.get("choices"):
                last_at = time.perf_counter()
                first_at = first_at or last_at
            num_tokens = (event.get("usage") or {}).get("completion_tokens", num_tokens)
    if not asked.allows(num_tokens):
        raise CommandError(f"{num_tokens} tokens were written, which is no answer ({asked.kind})")
    return Answered(asked.kind, num_tokens, first_at - due_at, last_at - due_at)


def _event(line: bytes) -> dict[str, Any] | None:
    """Return a line's event; None for a comment, an empty line, the end. Raises CommandError for an error."""
    if not line.startswith(_DATA):
        return None
    data = line[len(_DATA) :].strip()
    if data == b"[DONE]":
        return None
    event: dict[str, Any] = orjson.loads(data)
    if "error" in event:
        raise CommandError(f"the engine failed a request: {data[:500].decode(errors='replace')}")
    return event


def _first(errors: BaseExceptionGroup[Any]) -> str:
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error) or type(error).__name__
