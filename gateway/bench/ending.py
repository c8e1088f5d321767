"""The end of a process that a benchmark talks to."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import Process


async def end(process: Process, grace_s: float) -> None:
    """Return once it has ended: by SIGTERM, and by SIGKILL after ``grace_s``."""
    if process.returncode is None:
        process.terminate()
    try:
        async with asyncio.timeout(grace_s):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
