"""What a process and its children use: processor time and memory."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from gateway.errors import CommandError

SETTLE_POLL_S = 0.05
SETTLED_CPU_S = 0.003
LONGEST_SETTLE_S = 3.0


class Usage:
    """A process by its id, with all of its descendants. ``name`` is for errors.

    Raises CommandError without psutil, and from every method where the process has ended.
    """

    def __init__(self, pid: int, name: str) -> None:
        try:
            import psutil  # type: ignore[import-untyped]
        except ImportError as error:
            raise CommandError("psutil is missing: pip install 'narrative-gravity[evaluation]'") from error
        self._process = psutil.Process(pid)
        self._gone = psutil.NoSuchProcess
        self._name = name

    def cpu_s(self) -> float:
        """Processor time of all threads since their start."""
        return self._sum(_cpu_s)

    def rss_mib(self) -> float:
        return self._sum(lambda process: float(process.memory_info().rss)) / 2**20

    async def settled_cpu_s(self) -> float:
        """Return the processor time once what a run left to be done (records to write) has been done."""
        deadline = time.monotonic() + LONGEST_SETTLE_S
        before = self.cpu_s()
        while True:
            await asyncio.sleep(SETTLE_POLL_S)
            now = self.cpu_s()
            if now - before < SETTLED_CPU_S or time.monotonic() > deadline:
                return now
            before = now

    def _sum(self, figure: Callable[[Any], float]) -> float:
        try:
            return sum(
                figure(process) for process in (self._process, *self._process.children(recursive=True))
            )
        except self._gone:
            raise CommandError(f"{self._name} or a child of it ended before its time") from None


def _cpu_s(process: Any) -> float:
    # psutil reads ticks of 10 ms. Linux has a clock of nanoseconds for every process: clock_getcpuclockid(3).
    try:
        return time.clock_gettime(~process.pid << 3 | 2)
    except OSError:
        times = process.cpu_times()
        return float(times.user + times.system)
