"""Gives memory that was freed back to the system, which glibc keeps where something in use lies above it.

What oneDNN prepares for a product of so many rows (code and buffers, 0.4 MB) is made and thrown away between
the tensors of the steps. After products of 1 to 288 rows 360 MB of 740 were free and resident.
"""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Callable

BUSY_S, IDLE_S = 60.0, 5.0
"""Between two times while there is work, and before waiting for some. One takes up to 50 ms."""


class Heap:
    """The process's heap, as the thread that makes and frees tensors keeps it."""

    def __init__(
        self, trim: Callable[[], None] | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """``trim`` is by default glibc's, and nothing where there is none."""
        self._trim = trim or _glibc_trim()
        self._clock = clock
        self._trimmed_s = clock()

    def between_steps(self) -> None:
        self._trim_after(BUSY_S)

    def before_waiting(self) -> None:
        self._trim_after(IDLE_S)

    def _trim_after(self, seconds: float) -> None:
        if self._clock() - self._trimmed_s >= seconds:
            self._trim()
            self._trimmed_s = self._clock()


def _glibc_trim() -> Callable[[], None]:
    if sys.platform != "linux":
        return _nothing
    try:
        malloc_trim = ctypes.CDLL(None).malloc_trim
    except AttributeError:  # musl
        return _nothing
    return lambda: malloc_trim(0)


def _nothing() -> None:
    pass
