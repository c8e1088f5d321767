"""A target that does not answer ends the benchmark with its name and what it was asked."""

from __future__ import annotations

import asyncio
import socket
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import psutil  # type: ignore[import-untyped]
import pytest

from gateway.bench.load import Run
from gateway.bench.loader import loading
from gateway.bench.running import Running, alone
from gateway.bench.usage import Usage
from gateway.errors import CommandError
from gateway.stack.child import Child, Command
from gateway.stack.leash import Leash
from gateway.stack.ports import free_port

if TYPE_CHECKING:
    from tests.conftest import WaitUntil


async def error_of(run: Run, phase: str) -> str:
    """Return what a benchmark says whose target ended, once it has printed its last line."""
    with Leash() as leash:
        died = Command("litellm", (sys.executable, "-c", "print('out of memory')"))
        child = await Child.start(died, leash, lambda name, line: None)
        await child.wait()
        async with loading() as loader:
            with pytest.raises(CommandError) as raised:
                await Running("litellm", run.port, child, None).carry_out(run, loader, phase)
    return str(raised.value)


def test_a_target_that_accepts_and_says_nothing_is_given_up() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        run = Run(server.getsockname()[1], 2, 1024, 600.0, silence_s=0.2)
        said = asyncio.run(error_of(run, "60 KB, 16"))
    told = "litellm, 60 KB, 16: 2 of 2 requests got no byte in 0.2 s, after 0 answers"
    assert said == f"{told}; it has ended:\nout of memory"


def test_a_target_that_is_gone_is_named() -> None:
    said = asyncio.run(error_of(Run(free_port(), 2, 1024, 600.0), "memory"))
    assert said.startswith("litellm, memory: connection 1 cannot be made: ")
    assert said.endswith("it has ended:\nout of memory")


def test_a_target_that_closes_every_connection_has_answered_nothing() -> None:
    async def closing_at_once() -> str:
        async def close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(100)
            writer.close()

        async with await asyncio.start_server(close, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            return await error_of(Run(port, 3, 1024, 600.0), "warm-up")

    said = asyncio.run(closing_at_once())
    assert said.startswith("litellm, warm-up: not one request was answered (3 failed)")


def test_while_one_is_measured_the_others_stand_still(wait_until: WaitUntil) -> None:
    asyncio.run(one_of_three_is_measured(wait_until))


async def one_of_three_is_measured(wait_until: WaitUntil) -> None:
    lasting = (sys.executable, "-c", "import time; time.sleep(60)")
    with Leash() as leash:
        running = []
        for name in ("upstream", "gateway", "litellm"):
            child = await Child.start(Command(name, lasting), leash, lambda name, line: None)
            usage = None if name == "upstream" else Usage(child.pid, name)
            running.append(Running(name, 0, child, usage))
        with alone(running[1], running):
            wait_until(lambda: stands_still(running[2]))
            assert not stands_still(running[0])
            assert not stands_still(running[1])
        wait_until(lambda: not stands_still(running[2]))
        for each in running:
            await each.child.stop(5.0)


def stands_still(target: Running) -> bool:
    return bool(psutil.Process(target.child.pid).status() == psutil.STATUS_STOPPED)
