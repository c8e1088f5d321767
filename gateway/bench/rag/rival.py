"""The process of ``generate.py``, as the benchmark speaks to it."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson

from gateway.bench.ending import end
from gateway.bench.rag.questions import Messages
from gateway.errors import CommandError

ANSWER_S = 600.0
GRACE_S = 5.0


class Rival:
    """Answers one prompt at a time."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.pid = process.pid

    async def answer(self, messages: Messages, max_tokens: int) -> dict[str, Any]:
        """Return ``text``, ``prompt_tokens``, ``completion_tokens``. Raises CommandError where it ended."""
        assert self._process.stdin is not None
        self._process.stdin.write(orjson.dumps({"messages": messages, "max_tokens": max_tokens}) + b"\n")
        await self._process.stdin.drain()
        return await self.hear()

    async def hear(self) -> dict[str, Any]:
        """Return what it says next."""
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(ANSWER_S):
                line = await self._process.stdout.readline()
        except TimeoutError:
            raise CommandError(f"generate said nothing for {ANSWER_S:.0f} s") from None
        if not line:
            raise CommandError("generate's process ended before its answer did")
        told: dict[str, Any] = orjson.loads(line)
        return told


@asynccontextmanager
async def generating(folder: Path, dtype: str, num_threads: int) -> AsyncIterator[Rival]:
    """Start it, and end it with the block. It ends by itself where this process does."""
    count = str(num_threads)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gateway.bench.rag.generate", str(folder), dtype, count),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": count, "MKL_NUM_THREADS": count, "OMP_WAIT_POLICY": "passive"},
        limit=2**24,
    )
    try:
        rival = Rival(process)
        await rival.hear()
        yield rival
    finally:
        await end(process, GRACE_S)
