"""How long after its client has left a turn's connection to the worker is closed.

A gateway of its own stands before workers that never finish. Client, gateway and workers are on one machine,
and both moments are read in this process: the client's close, and the end of file at the worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import httpx
import numpy as np
import orjson
from rich.console import Console
from rich.table import Table

from gateway.chaos.upstream import MODEL, Phase, WaitingUpstream, waiting_upstream
from gateway.errors import StackError
from gateway.stack.child import Child, Command, keep_quiet
from gateway.stack.environment import child_environment
from gateway.stack.leash import Leash
from gateway.stack.ports import LOOPBACK, free_port, valkey_url
from gateway.stack.signals import until_signal
from gateway.stack.valkey import valkey_command, wait_for_ping

LIMIT_MS = 50.0
MAX_TRIES = 10
PATIENCE_S = 10.0
START_S = 60.0
PATH = "/v1/chat/completions"
BODY = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}]}
PHASES: tuple[Phase, ...] = ("before the first token", "mid-stream", "not streamed")
RETRY = "in a retry"


@dataclass(frozen=True, slots=True)
class Leavings:
    """One phase: milliseconds from the client's close to the worker's end of file, one a time."""

    phase: str
    delays_ms: tuple[float, ...]

    @property
    def is_in_time(self) -> bool:
        return max(self.delays_ms) <= LIMIT_MS

    def as_json(self) -> dict[str, Any]:
        p50, p99 = (float(np.percentile(self.delays_ms, share)) for share in (50, 99))
        worst = max(self.delays_ms)
        return {
            "phase": self.phase,
            "times": len(self.delays_ms),
            "p50_ms": p50,
            "p99_ms": p99,
            "max_ms": worst,
        }


def run_cancelling(num_times: int, json_file: Path | None) -> int:
    """Leave ``num_times`` in each phase. Returns 1 where one took over 50 ms or something stayed behind."""
    found, left_behind = asyncio.run(until_signal(_measured(num_times)))
    _print(found, left_behind)
    is_good = all(leavings.is_in_time for leavings in found) and not left_behind
    if json_file is not None:
        report = {
            "limit_ms": LIMIT_MS,
            "phases": [each.as_json() for each in found],
            "left_behind": left_behind,
            "is_good": is_good,
        }
        json_file.write_bytes(orjson.dumps(report, option=orjson.OPT_INDENT_2) + b"\n")
    return 0 if is_good else 1


async def _measured(num_times: int) -> tuple[list[Leavings], list[str]]:
    ports = [free_port() for _ in range(4)]
    with Leash() as leash:
        children: list[Child] = []
        try:
            children.append(await Child.start(valkey_command(ports[0]), leash, keep_quiet))
            await wait_for_ping(valkey_url(ports[0]), START_S, children[0])
            async with waiting_upstream(ports[1]) as waiting, waiting_upstream(ports[2]) as refusing:
                refusing.phase = "refuses"
                environment = child_environment() | {
                    "NG_HOST": LOOPBACK,
                    "NG_PORT": str(ports[3]),
                    "NG_REDIS_URL": valkey_url(ports[0]),
                    "NG_WORKERS": f"{waiting.url},{refusing.url}",
                    "NG_PRELOAD_ENCODER": "false",
                }
                command = Command("gateway", (sys.executable, "-m", "gateway"), environment)
                children.append(await Child.start(command, leash, keep_quiet))
                ready = await children[-1].wait_ready(START_S)
                return await _all_phases(str(ready["url"]), waiting, refusing, num_times)
        finally:
            for child in reversed(children):
                await child.stop(PATIENCE_S)


async def _all_phases(
    url: str, waiting: WaitingUpstream, refusing: WaitingUpstream, num_times: int
) -> tuple[list[Leavings], list[str]]:
    async with httpx.AsyncClient(base_url=url, timeout=PATIENCE_S) as client:
        await _until(lambda: _is_ready(client))
        found = []
        for phase in PHASES:
            waiting.phase = phase
            found.append(Leavings(phase, await _left(url, waiting, num_times)))
        waiting.phase = "before the first token"
        found.append(Leavings(RETRY, await _left_in_retries(url, waiting, refusing, num_times)))
        left_behind = []
        if waiting.num_open:
            left_behind.append(f"{waiting.num_open} connections to the worker")
        await _until(lambda: _has_no_turn(client))
        health = (await client.get("/health")).json()
        left_behind += [
            f"{worker['num_in_flight']} slots at {worker['name']}"
            for worker in health["workers"]
            if worker["num_in_flight"]
        ]
        return found, left_behind


async def _left(url: str, worker: WaitingUpstream, num_times: int) -> tuple[float, ...]:
    """Leave the worker that waits, ``num_times``; what the other one refuses comes here too."""
    body = {**BODY, "stream": worker.phase != "not streamed"}
    return tuple([await _leave_once(url, body, worker) for _ in range(num_times)])


async def _left_in_retries(
    url: str, waiting: WaitingUpstream, refusing: WaitingUpstream, num_times: int
) -> tuple[float, ...]:
    """Leave as often as it takes for ``num_times`` turns to have been at the one that refuses first."""
    delays: list[float] = []
    for _ in range(MAX_TRIES * num_times):
        num_before = refusing.asked.qsize()
        delay_ms = await _leave_once(url, {**BODY, "stream": True}, waiting)
        if refusing.asked.qsize() > num_before:
            delays.append(delay_ms)
        if len(delays) == num_times:
            return tuple(delays)
    raise StackError("fewer retries than meant: the worker that refuses is hardly asked")


async def _leave_once(url: str, body: Mapping[str, Any], worker: WaitingUpstream) -> float:
    """Return the milliseconds between the client's close and the worker's end of file."""
    address = httpx.URL(url)
    reader, writer = await asyncio.open_connection(address.host, address.port)
    content = orjson.dumps(body)
    head = f"POST {PATH} HTTP/1.1\r\nHost: {LOOPBACK}\r\nContent-Length: {len(content)}\r\n\r\n"
    writer.write(head.encode() + content)
    async with asyncio.timeout(PATIENCE_S):
        await worker.asked.get()
        if worker.phase == "mid-stream":
            await reader.readuntil(b"some")
        left_at = perf_counter()
        writer.close()
        closed_at = await worker.left.get()
    return 1000.0 * (closed_at - left_at)


async def _until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Raise StackError where it does not become true."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not await condition():  # noqa: ASYNC110 - another process's state
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise StackError("the gateway did not come to rest") from None


async def _is_ready(client: httpx.AsyncClient) -> bool:
    with contextlib.suppress(httpx.TransportError):
        health = (await client.get("/health")).json()
        return all(worker["is_ready"] for worker in health["workers"])
    return False


async def _has_no_turn(client: httpx.AsyncClient) -> bool:
    return bool((await client.get("/health")).json()["open_turns"] == 0)


def _print(found: list[Leavings], left_behind: list[str]) -> None:
    console = Console(highlight=False)
    table = Table("the client leaves", "times", "p50 ms", "p99 ms", "max ms", f"within {LIMIT_MS:.0f} ms")
    for leavings in found:
        row = leavings.as_json()
        figures = [f"{row[name]:.1f}" for name in ("p50_ms", "p99_ms", "max_ms")]
        table.add_row(leavings.phase, str(row["times"]), *figures, "yes" if leavings.is_in_time else "NO")
    console.print(table)
    console.print("left behind: " + (", ".join(left_behind) or "nothing"))
