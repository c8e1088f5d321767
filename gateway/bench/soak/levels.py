"""What a process holds beside memory, at rest: open files and connections, threads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gateway.chaos.place import Place
from gateway.chaos.site import Site

ALLOWED_DESCRIPTORS = 8
"""More at the end than at the beginning: connections that are kept for the next request."""
ALLOWED_THREADS = 4
"""A pool's threads are started when they are first needed."""


@dataclass(frozen=True, slots=True)
class Levels:
    """Of one process, from /proc."""

    num_descriptors: int
    num_threads: int


def levels_of(site: Site) -> dict[str, Levels]:
    """Return them by the process' name. Raises OSError where a process is gone."""
    return {place.name: _levels(place) for place in site.places}


def growth_problems(before: Mapping[str, Levels], after: Mapping[str, Levels]) -> list[str]:
    """Return what a process holds more of than it may have begun to."""
    found = []
    for name, now in after.items():
        then = before[name]
        if now.num_descriptors > then.num_descriptors + ALLOWED_DESCRIPTORS:
            found.append(f"{name} had {then.num_descriptors} open files and has {now.num_descriptors}")
        if now.num_threads > then.num_threads + ALLOWED_THREADS:
            found.append(f"{name} had {then.num_threads} threads and has {now.num_threads}")
    return found


def _levels(place: Place) -> Levels:
    process = Path("/proc") / str(place.pid)
    return Levels(len(list((process / "fd").iterdir())), len(list((process / "task").iterdir())))
