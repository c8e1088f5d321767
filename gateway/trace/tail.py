"""``gravity trace tail``: turns as they end, and the steps of those that run."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Mapping
from typing import Any

from redis.asyncio import Redis
from rich.console import Console
from rich.text import Text

from gateway.errors import TraceError
from gateway.trace.keys import TURNS_KEY
from gateway.trace.listing import cells
from gateway.trace.query import TurnFilter, TurnQuery, parse_row
from gateway.trace.reading import reading
from worker.protocol import TRACE_KEY_PREFIX, StepRecord, unpack_steps

BLOCK_MS = 1_000
NEW_TRACES_S = 0.5
MAX_FOLLOWED = 64
"""Running turns whose steps are shown at once."""


def run_tail(query: TurnQuery, redis_url: str) -> int:
    """Print each turn of ``query`` that ends from now on, until Ctrl-C."""
    return _until_interrupted(_tail(query, redis_url))


def run_tail_steps(query: TurnQuery, redis_url: str) -> int:
    """The same, and every step of the turns that run meanwhile."""
    return _until_interrupted(_tail_steps(query, redis_url))


def _until_interrupted(work: Coroutine[Any, Any, None]) -> int:
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(work)
    return 0


async def _tail(query: TurnQuery, redis_url: str) -> None:
    async with reading(redis_url) as redis:
        await _print_turns(redis, query, Console(highlight=False))


async def _tail_steps(query: TurnQuery, redis_url: str) -> None:
    console = Console(highlight=False)
    async with reading(redis_url) as redis:
        seen = {key async for key in _trace_keys(redis)}
        await asyncio.gather(_print_turns(redis, query, console), _print_steps(redis, seen, console))


async def _print_turns(redis: Redis, query: TurnQuery, console: Console) -> None:
    wanted = TurnFilter(query)
    console.print(Text(f"following {TURNS_KEY}; Ctrl-C ends it", style="dim"))
    async for entry_id, fields in follow(redis, await _last_id(redis)):
        row = parse_row(entry_id, fields)
        if wanted.admits(row):
            console.print(Text("  ".join(cells(row))), soft_wrap=True)


async def follow(redis: Redis, last_id: str) -> AsyncGenerator[tuple[bytes, Mapping[bytes, bytes]], None]:
    """Give every entry of ``ng:turns`` after ``last_id``, as it is written, without end."""
    while True:
        answer: Any = await redis.xread({TURNS_KEY: last_id}, block=BLOCK_MS, count=500)
        for _, entries in answer or ():
            for entry in entries:
                last_id = entry[0].decode()
                yield entry


async def _last_id(redis: Redis) -> str:
    last: Any = await redis.xrevrange(TURNS_KEY, count=1)
    return last[0][0].decode() if last else "0-0"


async def _print_steps(redis: Redis, seen: set[bytes], console: Console) -> None:
    """Follow the traces that are not ``seen`` yet. A new one is noticed by its key, at an interval."""
    positions: dict[Any, Any] = {}
    while True:
        async for key in _trace_keys(redis):
            if key not in seen:
                seen.add(key)
                positions[key] = "0-0"
        for key in list(positions)[:-MAX_FOLLOWED]:
            del positions[key]
        if not positions:
            await asyncio.sleep(NEW_TRACES_S)
            continue
        answer: Any = await redis.xread(positions, block=int(NEW_TRACES_S * 1e3), count=100)
        for key, entries in answer or ():
            positions[key] = entries[-1][0]
            for _, fields in entries:
                _print_entry(console, key.decode().removeprefix(TRACE_KEY_PREFIX), fields)


def _print_entry(console: Console, turn_id: str, fields: Mapping[bytes, bytes]) -> None:
    if b"end" in fields:
        console.print(Text(f"{turn_id}  {fields[b'choice'].decode()}:end   {fields[b'end'].decode()}"))
        return
    try:
        choice, first, steps = unpack_steps(fields)
    except (KeyError, ValueError) as error:
        raise TraceError(f"turn {turn_id}: a damaged entry in the trace ({error})") from error
    for number, step in enumerate(steps, first):
        console.print(Text(f"{turn_id}  {choice}:{number:<5} {_shown(step)}"), soft_wrap=True)


def _shown(step: StepRecord) -> str:
    return (
        f"#{step.token_id:<7} H {step.entropy_nats:.3f}  G {step.gravity:.3f}  k {step.k}  "
        f"T {step.temperature:.2f}  logprob {step.logprob:.2f}"
    )


async def _trace_keys(redis: Redis) -> AsyncIterator[bytes]:
    async for key in redis.scan_iter(match=TRACE_KEY_PREFIX + "*", count=1_000):
        yield key
