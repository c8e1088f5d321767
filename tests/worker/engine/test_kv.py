from __future__ import annotations

import mmap
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from worker.engine.architecture import Architecture
from worker.engine.kv import KVStore, Pages, SlotTable

SHAPE = Architecture(
    vocab_size=10,
    hidden_size=8,
    intermediate_size=8,
    num_layers=2,
    num_heads=2,
    num_kv_heads=1,
    head_dim=4,
    norm_eps=1e-5,
    has_tied_head=True,
    max_positions=100,
    rotary={"rope_type": "default", "rope_theta": 10_000.0},
)


def test_the_lowest_free_slot_is_handed_out() -> None:
    slots = SlotTable(3, 16)
    assert [slots.acquire() for _ in range(3)] == [0, 1, 2]
    assert not slots.has_free
    slots.release(2)
    slots.release(0)
    assert slots.acquire() == 0


def test_there_are_never_more_slots_than_were_reserved() -> None:
    slots = SlotTable(1, 16)
    slots.acquire()
    with pytest.raises(IndexError):
        slots.acquire()


def test_usage_counts_slots_and_tokens() -> None:
    slots = SlotTable(4, 16)
    first, second = slots.acquire(), slots.acquire()
    slots.grow(first, 5)
    slots.grow(second, 7)
    slots.grow(first, 6)
    usage = slots.usage()
    assert (usage.used_slots, usage.total_slots) == (2, 4)
    assert (usage.used_tokens, usage.total_tokens) == (13, 64)
    slots.release(second)
    assert slots.usage().used_tokens == 6


def test_a_row_written_is_read_back_by_slot_position_and_head() -> None:
    store = KVStore(SHAPE, 3, 5, torch.float32, torch.device("cpu"))
    row = torch.arange(8.0)  # one key head of four numbers, then one value head
    store.rows[1][2 * 5 + 3] = row
    keys, values = store.read(slice(2, 3), 4)
    assert keys[1].shape == (1, 1, 4, 4)
    assert keys[1][0, 0, 3].tolist() == [0, 1, 2, 3]
    assert values[1][0, 0, 3].tolist() == [4, 5, 6, 7]
    assert not keys[0].any()


def test_clearing_a_slot_leaves_no_number_of_it_and_no_other_slot_touched() -> None:
    store = KVStore(SHAPE, 3, 5, torch.float32, torch.device("cpu"))
    for rows in store.rows:
        rows[0:4] = float("nan")  # slot 0
        rows[5:10] = 1.0  # slot 1
    store.clear(0, 4)
    for rows in store.rows:
        assert not rows[0:5].any()
        assert bool((rows[5:10] == 1.0).all())


def test_more_memory_than_there_is_says_what_to_lower() -> None:
    with pytest.raises(MemoryError, match=r"1024 requests of 4294967296 tokens need .* GiB; lower the batch"):
        KVStore(SHAPE, 1 << 10, 1 << 32, torch.float32, torch.device("cpu"))


def test_memory_is_reserved_once_and_in_full() -> None:
    store = KVStore(SHAPE, 3, 5, torch.bfloat16, torch.device("cpu"))
    assert store.num_bytes == 2 * 3 * 5 * 2 * 4 * 2


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux takes single pages back")
def test_what_a_slot_held_goes_back_to_the_system_and_its_neighbours_stay() -> None:
    large = replace(SHAPE, num_layers=8, num_kv_heads=8, head_dim=64)  # 4 KiB a token and layer
    store = KVStore(large, 3, 1_001, torch.float32, torch.device("cpu"))
    before = _resident_bytes()
    for rows in store.rows:
        rows[:] = 1.0
    filled = _resident_bytes()
    assert filled - before > 0.9 * store.num_bytes
    store.clear(1, 1_000)
    assert filled - _resident_bytes() > 0.9 * 8 * 1_000 * 4_096
    for rows in store.rows:
        held = rows[:, 0].view(3, 1_001)
        assert bool((held[(0, 2), :] == 1.0).all())
        assert not held[1, :1_000].any()
        assert held[1, 1_000] == 1.0


@pytest.mark.skipif(sys.platform != "linux", reason="Linux's pages")
@pytest.mark.parametrize(
    ("start", "end"), [(0, 10), (5, 4_096), (4_000, 4_200), (100, 20_000), (4_096, 12_288)]
)
def test_zeroing_ends_where_it_is_told(start: int, end: int) -> None:
    pages = Pages(5 * 4_096)
    pages.bytes.fill_(7)
    pages.zero(start, end)
    assert torch.nonzero(pages.bytes == 0).flatten().tolist() == list(range(start, end))


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE
