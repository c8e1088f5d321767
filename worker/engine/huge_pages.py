"""Moves weights onto huge pages, where Linux can: a step reads all of them, through as few pages as possible.

Measured on a small model: 5 % of a step. Best effort: without it everything works as before, a little slower.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterable
from dataclasses import dataclass

PAGE_BYTES = 2 << 20
_MADV_COLLAPSE = 25
"""Linux 6.1: copy the range onto huge pages now, whatever the system's default for new memory is."""


@dataclass(frozen=True, slots=True)
class MemoryRange:
    """Bytes of this process, from ``address`` on."""

    address: int
    num_bytes: int


def move_to_huge_pages(ranges: Iterable[MemoryRange]) -> int:
    """Return how many huge pages now hold the ranges: 0 where the system does not know of this."""
    if sys.platform != "linux":
        return 0
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    pages = {page for memory in ranges for page in _pages(memory)}
    # One by one: a page that cannot be moved (at the end of a mapping) must not keep the others.
    return sum(madvise(page * PAGE_BYTES, PAGE_BYTES, _MADV_COLLAPSE) == 0 for page in sorted(pages))


def _pages(memory: MemoryRange) -> range:
    """Numbers of the huge pages that the range touches: small weights lie several to a page."""
    last = memory.address + memory.num_bytes - 1
    return range(memory.address // PAGE_BYTES, last // PAGE_BYTES + 1)
