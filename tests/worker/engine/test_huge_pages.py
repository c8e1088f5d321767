from __future__ import annotations

import torch

from worker.engine.huge_pages import PAGE_BYTES, MemoryRange, move_to_huge_pages
from worker.engine.linear import PackedLinear, packed_linear


def test_moving_changes_no_weight() -> None:
    weight = torch.randn(3000, 1024).to(torch.bfloat16)
    x = torch.randn(2, 1024).to(torch.bfloat16)
    linear = packed_linear(weight, None)
    assert isinstance(linear, PackedLinear)
    assert linear.memory.num_bytes >= weight.nbytes
    before = linear(x)
    num_moved = move_to_huge_pages([linear.memory])
    assert 0 <= num_moved <= linear.memory.num_bytes // PAGE_BYTES + 2
    assert torch.equal(linear(x), before)


def test_memory_that_cannot_be_moved_is_no_error() -> None:
    assert move_to_huge_pages([MemoryRange(0, 10)]) == 0
    assert move_to_huge_pages([]) == 0
