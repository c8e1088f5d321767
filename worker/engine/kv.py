"""Keys and values of running requests: a fixed number of slots of fixed length, reserved once."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
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
    """Which slots are taken and how many tokens each holds. Always hands out the lowest free slot."""

    def __init__(self, num_slots: int, slot_tokens: int) -> None:
        self.num_slots = num_slots
        self.slot_tokens = slot_tokens
        self._free = list(range(num_slots))
        self._lengths: dict[int, int] = {}

    @property
    def has_free(self) -> bool:
        return bool(self._free)

    def acquire(self) -> int:
        """Take a slot. Raises IndexError where none is free."""
        slot = heapq.heappop(self._free)
        self._lengths[slot] = 0
        return slot

    def grow(self, slot: int, length: int) -> None:
        """Record that the slot now holds ``length`` tokens."""
        self._lengths[slot] = length

    def release(self, slot: int) -> None:
        """Give a slot back. Raises KeyError where it was not taken."""
        del self._lengths[slot]
        heapq.heappush(self._free, slot)

    def usage(self) -> KVUsage:
        return KVUsage(
            used_slots=len(self._lengths),
            total_slots=self.num_slots,
            used_tokens=sum(self._lengths.values()),
            total_tokens=self.num_slots * self.slot_tokens,
        )


class KVStore:
    """The tensors: per layer [slots, 2 * kv_heads, tokens, head_dim], keys before values.

    One slot's tokens are contiguous per head, so attention reads a slice without gathering. All-zero at first and
    again after ``clear``: positions beyond a request's length are masked, and a masked NaN would still spoil it.
    """

    def __init__(
        self,
        architecture: Architecture,
        num_slots: int,
        slot_tokens: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        shape = (
            architecture.num_layers,
            num_slots,
            2 * architecture.num_kv_heads,
            slot_tokens,
            architecture.head_dim,
        )
        self._all = (
            _lazily_zeroed(shape, dtype)
            if device.type == "cpu"
            else torch.zeros(shape, dtype=dtype, device=device)
        )
        self.layers = tuple(self._all)

    @property
    def dtype(self) -> torch.dtype:
        return self._all.dtype

    @property
    def num_bytes(self) -> int:
        return self._all.nbytes

    def clear(self, slot: int, num_tokens: int) -> None:
        """Zero the first ``num_tokens`` positions of a slot."""
        self._all[:, slot, :, :num_tokens].zero_()


def _lazily_zeroed(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Reserve zeroed memory of which the system commits only the pages that are written (calloc)."""
    num_bytes = torch.Size(shape).numel() * dtype.itemsize
    return torch.from_numpy(np.zeros(num_bytes, dtype=np.uint8)).view(dtype).view(shape)
