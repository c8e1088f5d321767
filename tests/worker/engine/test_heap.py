from __future__ import annotations

import subprocess
import sys

import pytest

from worker.engine.heap import BUSY_S, IDLE_S, Heap

MIB = 1 << 20


def test_memory_goes_back_once_a_minute_under_load_and_sooner_before_waiting() -> None:
    now, trimmed_at = [100.0], []
    heap = Heap(lambda: trimmed_at.append(now[0]), lambda: now[0])
    for now[0] in (100.0, 104.0):
        heap.between_steps()
        heap.before_waiting()
    assert trimmed_at == []
    now[0] = 100.0 + IDLE_S
    heap.between_steps()
    assert trimmed_at == []
    heap.before_waiting()
    assert trimmed_at == [105.0]
    for now[0] in (105.0 + BUSY_S - 1, 105.0 + BUSY_S, 106.0 + BUSY_S):
        heap.between_steps()
    assert trimmed_at == [105.0, 105.0 + BUSY_S]


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's heap")
def test_what_lies_free_below_what_is_used_is_given_back() -> None:
    # In a process of its own, which has no free memory yet that the blocks could come from.
    told = subprocess.run([sys.executable, "-c", FREES_BELOW], capture_output=True, text=True, check=True)
    before, held, after = map(int, told.stdout.split())
    assert held - before > 48 * MIB
    assert held - after > 48 * MIB


FREES_BELOW = """
import ctypes
from pathlib import Path
from worker.engine.heap import Heap

def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.free.argtypes = (ctypes.c_void_p,)
before = resident_bytes()
blocks = [libc.malloc(64 * 1024) for _ in range(1024)]  # too small for a mapping of its own
for block in blocks:
    ctypes.memset(block, 1, 64 * 1024)
for block in blocks[:-1]:
    libc.free(block)
held = resident_bytes()
moments = iter([0.0, 60.0, 60.0])
Heap(clock=lambda: next(moments)).before_waiting()
print(before, held, resident_bytes())
"""
