"""The load client's process, as the benchmark speaks to it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict

import orjson

from gateway.bench.load import Measured, Run
from gateway.errors import CommandError

LONGEST_LINE_BYTES = 64 * 2**20


class Loader:
    """Carries out one run at a time."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def carry_out(self, run: Run) -> Measured:
        """Raises CommandError where the client ended, or a run did not come to its end."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(orjson.dumps(asdict(run)) + b"\n")
        await self._process.stdin.drain()
        line = await self._process.stdout.readline()
        if not line:
            raise CommandError("the benchmark's client ended before its run did")
        return Measured(**orjson.loads(line))


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
        if process.returncode is None:
            process.terminate()
        await process.wait()
