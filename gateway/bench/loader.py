"""The load client's process, as the benchmark speaks to it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict

import orjson

from gateway.bench.ending import end
from gateway.bench.load import CONNECT_S, STALLED, Measured, Run
from gateway.errors import CommandError

LONGEST_LINE_BYTES = 64 * 2**20
MARGIN_S = 30.0
GRACE_S = 5.0


class Loader:
    """Carries out one run at a time."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def carry_out(self, run: Run) -> Measured:
        """Raises CommandError where the client ended, is stuck, or a run does not come to its end."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        limit_s = CONNECT_S + run.duration_s + run.silence_s + MARGIN_S
        try:
            async with asyncio.timeout(limit_s):
                self._process.stdin.write(orjson.dumps(asdict(run)) + b"\n")
                await self._process.stdin.drain()
                line = await self._process.stdout.readline()
        except TimeoutError:
            raise CommandError(f"the benchmark's client said nothing for {limit_s:.0f} s") from None
        if not line:
            raise CommandError("the benchmark's client ended before its run did")
        told = orjson.loads(line)
        if STALLED in told:
            raise CommandError(told[STALLED])
        return Measured(**told)


@asynccontextmanager
async def loading() -> AsyncIterator[Loader]:
    """Start the client and end it with the block. It ends by itself where this process does."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gateway.bench.load"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=LONGEST_LINE_BYTES,
    )
    try:
        yield Loader(process)
    finally:
        await end(process, GRACE_S)
