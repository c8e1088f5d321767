"""Memory of the processes in the course of a run, and whether it grows."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from time import monotonic
from typing import TypeAlias

import numpy as np

from gateway.chaos.site import Site

INTERVAL_S = 2.0
WARM_S = 60.0
SPAN_S = 120.0
"""A life shorter than warm-up and this says nothing about growth."""
WINDOW_S = 20.0
MIB = 2**20
ALLOWED_MIB, ALLOWED_SHARE = 32.0, 0.1
HELD = ("01", "08")
"""Established, and CLOSE_WAIT: the other end has closed it, and this one has not noticed."""

Sample: TypeAlias = tuple[float, int]
"""A moment in seconds, and resident bytes."""


class MemoryWatch:
    """Samples each process; a process that was started again begins a new series."""

    def __init__(self, site: Site, warm_s: float = WARM_S) -> None:
        self._site = site
        self._warm_s = warm_s
        self._samples: dict[tuple[str, int], list[Sample]] = defaultdict(list)

    async def run(self) -> None:
        """Sample until cancelled."""
        while True:
            for place in self._site.places:
                with contextlib.suppress(OSError, ProcessLookupError):
                    self._samples[place.name, place.pid].append((monotonic(), resident_bytes(place.pid)))
            await asyncio.sleep(INTERVAL_S)

    def growth_mib(self) -> Mapping[str, float]:
        """Return by process how much the straight line through the longest series rises, after warm-up."""
        return {
            name: rise_mib(samples, self._warm_s)
            for name, samples in self._longest().items()
            if _span_s(samples) >= self._warm_s + SPAN_S
        }

    def course_mib(self) -> Mapping[str, list[float]]:
        """Return by process the lowest of each window of the longest series, warm-up included."""
        return {
            name: [round(size / MIB, 1) for _, size in _lowest(samples, samples[0][0])]
            for name, samples in self._longest().items()
        }

    def problems(self) -> list[str]:
        longest = self._longest()
        largest = {name: max(size for _, size in samples) / MIB for name, samples in longest.items()}
        return [
            f"{name} grew by {rise:.0f} MiB"
            for name, rise in self.growth_mib().items()
            if name != "valkey" and rise > max(ALLOWED_MIB, ALLOWED_SHARE * largest[name])
        ]

    def _longest(self) -> Mapping[str, list[Sample]]:
        longest: dict[str, list[Sample]] = {}
        for (name, _), samples in self._samples.items():
            longest[name] = max(longest.get(name, []), samples, key=_span_s)
        return longest


def rise_mib(samples: Sequence[Sample], warm_s: float = WARM_S) -> float:
    """Return how far the line of least squares through the lowest of each window rises after warm-up, in MiB.

    The lowest, because what is in flight (keys and values of answers) comes and goes, and a leak stays.
    """
    began_s = samples[0][0] + warm_s
    moments, sizes = np.array(_lowest(samples, began_s), dtype=float).T
    slope = np.polyfit(moments - moments[0], sizes, 1)[0]
    return float(slope * (samples[-1][0] - began_s) / MIB)


def _lowest(samples: Sequence[Sample], began_s: float) -> list[Sample]:
    """Return the lowest sample of each window from ``began_s`` on."""
    lowest: dict[int, Sample] = {}
    for moment_s, size in samples:
        if moment_s >= began_s:
            window = int((moment_s - began_s) // WINDOW_S)
            lowest[window] = min(lowest.get(window, (moment_s, size)), (moment_s, size), key=itemgetter(1))
    return list(lowest.values())


def resident_bytes(pid: int) -> int:
    """Raises OSError where the process is gone or the system has no /proc."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096


def num_connections(port: int) -> int:
    """Return how many connections to a local port the server holds."""
    found = 0
    with contextlib.suppress(OSError):
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            _, local, _, state, *_ = line.split()
            found += state in HELD and int(local.rpartition(":")[2], 16) == port
    return found


def _span_s(samples: Sequence[Sample]) -> float:
    return samples[-1][0] - samples[0][0] if samples else 0.0
