"""Keys and values of running requests: a fixed number of slots of fixed length, reserved once."""

from __future__ import annotations

import heapq
import mmap
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from worker.engine.architecture import Architecture


@dataclass(frozen=True, slots=True)
class KVUsage:
    """How full the slots are, in slots and tokens."""

    used_slots: int
    total_slots: int
    used_tokens: int
    total_tokens: int


class SlotTable:
    """Which slots are taken and how many tokens each holds. Hands out the lowest free slot."""

    def __init__(self, num_slots: int, slot_tokens: int) -> None:
        self.num_slots = num_slots
        self.slot_tokens = slot_tokens
        self._free = list(range(num_slots))
        self._lengths: dict[int, int] = {}
        self._used_tokens = 0

    @property
    def has_free(self) -> bool:
        return bool(self._free)

    def acquire(self) -> int:
        """Take a slot. Raises IndexError where none is free."""
        slot = heapq.heappop(self._free)
        self._lengths[slot] = 0
        return slot

    def grow(self, slot: int, length: int) -> None:
        """Record that the slot holds ``length`` tokens."""
        self._used_tokens += length - self._lengths[slot]
        self._lengths[slot] = length

    def release(self, slot: int) -> None:
        """Give a slot back. Raises KeyError where it was not taken."""
        self._used_tokens -= self._lengths.pop(slot)
        heapq.heappush(self._free, slot)

    def usage(self) -> KVUsage:
        return KVUsage(
            used_slots=len(self._lengths),
            total_slots=self.num_slots,
            used_tokens=self._used_tokens,
            total_tokens=self.num_slots * self.slot_tokens,
        )


class KVStore:
    """The tensors: per layer [slots, tokens, 2 * kv_heads, head_dim], keys before values.

    A token's keys and values are written as one row a layer, and attention reads slices without gathering.
    All-zero at first and again after ``clear``: positions beyond a request's length are masked, but a masked
    NaN would spoil the sum all the same. On Linux memory follows what is held: it is taken page by page
    as it is written, and ``clear`` gives it back.
    """

    def __init__(
        self,
        architecture: Architecture,
        num_slots: int,
        slot_tokens: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        """Reserve it all. Raises MemoryError, which says what to lower."""
        token_shape = (2 * architecture.num_kv_heads, architecture.head_dim)
        shape = (architecture.num_layers, num_slots, slot_tokens, *token_shape)
        self.token_shape = token_shape
        """(2 * kv_heads, head_dim): one token of one layer."""
        self.num_slots = num_slots
        self.slot_tokens = slot_tokens
        self._pages, self._all = _reserve(shape, dtype, device)
        self.rows = self._all.view(architecture.num_layers, num_slots * slot_tokens, -1).unbind()
        """The memory by layer, a token a row: [slots * tokens, 2 * kv_heads * head_dim]."""

    @property
    def dtype(self) -> torch.dtype:
        return self._all.dtype

    @property
    def device(self) -> torch.device:
        return self._all.device

    @property
    def num_bytes(self) -> int:
        return self._all.nbytes

    def places(self, slots: Tensor, positions: Tensor) -> Tensor:
        """Return which of ``rows`` belong to these positions of these slots, int64 each."""
        return slots * self.slot_tokens + positions

    def read(self, slots: slice, length: int) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Return views of keys and of values by layer, each [slots, kv_heads, length, head_dim]."""
        keys, values = self._all[:, slots, :length].transpose(2, 3).chunk(2, 2)
        return keys.unbind(), values.unbind()

    def clear(self, slot: int, num_tokens: int) -> None:
        """Zero the first ``num_tokens`` positions of a slot."""
        if self._pages is None:
            self._all[:, slot, :num_tokens].zero_()
            return
        layer_bytes, slot_bytes, token_bytes = (self._all.itemsize * n for n in self._all.stride()[:3])
        for layer in range(len(self.rows)):
            start = layer * layer_bytes + slot * slot_bytes
            self._pages.zero(start, start + num_tokens * token_bytes)


class KVBlocks:
    """Blocks of ``block_tokens`` consecutive rows, copied out of slots and into slots, all layers at once.

    A copy, not a page table: slots stay contiguous, which attention reads without gathering, and a token's
    copy costs a few thousandths of its computation.
    """

    def __init__(self, store: KVStore, num_blocks: int, block_tokens: int) -> None:
        """Reserve it all. Raises MemoryError."""
        self._store = store
        self.num_blocks = num_blocks
        self.block_tokens = block_tokens
        width = block_tokens * store.rows[0].shape[1]
        shape = (len(store.rows), 1, max(num_blocks, 1), width)
        self._pages, everything = _reserve(shape, store.dtype, store.device)
        self._layers = everything.squeeze(1).unbind()

    def save(self, slot: int, first: int, blocks: Sequence[int]) -> None:
        """Copy the slot's blocks number ``first`` and on into ``blocks``."""
        ids = torch.tensor(blocks, device=self._store.device)
        for rows, layer in zip(self._store.rows, self._layers, strict=True):
            layer.index_copy_(0, ids, self._view(rows, slot, first, len(blocks)))

    def load(self, blocks: Sequence[int], slot: int) -> None:
        """Copy ``blocks`` to the beginning of a slot."""
        ids = torch.tensor(blocks, device=self._store.device)
        for rows, layer in zip(self._store.rows, self._layers, strict=True):
            torch.index_select(layer, 0, ids, out=self._view(rows, slot, 0, len(blocks)))

    def _view(self, rows: Tensor, slot: int, first: int, num_blocks: int) -> Tensor:
        start = slot * self._store.slot_tokens + first * self.block_tokens
        return rows[start : start + num_blocks * self.block_tokens].view(num_blocks, -1)


class Pages:
    """Zeros that the system commits page by page as they are written, and takes back. Linux only."""

    def __init__(self, num_bytes: int) -> None:
        """Raises OSError and OverflowError where there is not so much."""
        self._mapping = mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.bytes = torch.frombuffer(self._mapping, dtype=torch.uint8)

    def zero(self, start: int, end: int) -> None:
        """Zero bytes from ``start`` to before ``end``: whole pages go back, and read as zeros from now on."""
        first, last = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE, end // mmap.PAGESIZE * mmap.PAGESIZE
        if last <= first:
            self.bytes[start:end].zero_()
            return
        self._mapping.madvise(mmap.MADV_DONTNEED, first, last - first)
        self.bytes[start:first].zero_()
        self.bytes[last:end].zero_()


def _reserve(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> tuple[Pages | None, Tensor]:
    """Reserve zeros."""
    num_bytes = torch.Size(shape).numel() * dtype.itemsize
    try:
        if device.type != "cpu" or sys.platform != "linux":
            return None, torch.zeros(shape, dtype=dtype, device=device)
        pages = Pages(num_bytes)
    except (MemoryError, OSError, OverflowError, torch.OutOfMemoryError) as error:
        raise MemoryError(
            f"keys and values of {shape[1]} requests of {shape[2]} tokens need {num_bytes / 2**30:.1f} GiB; "
            "lower the batch or the context"
        ) from error
    return pages, pages.bytes.view(dtype).view(shape)
