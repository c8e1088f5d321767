"""Keys and values of the kept blocks of one slot, side by side."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from worker.engine.kv import KVStore
from worker.thermo.blocks import BLOCK_TOKENS


class KeptRows:
    """A contiguous copy, since attention reads contiguous rows fastest; the slot itself keeps everything.

    Keys are rotated by where they stand in the text, so nothing is re-indexed, and to attention the order of
    rows is nothing. What is written to the slot later is copied behind them.
    """

    def __init__(self, store: KVStore, slot: int) -> None:
        self.source = tuple(
            rows.view(store.num_slots, store.slot_tokens, *store.token_shape)[slot] for rows in store.rows
        )
        """The slot by layer, [tokens, 2 * kv_heads, head_dim]."""
        self._rows = torch.empty(0, 0, *store.token_shape, dtype=store.dtype, device=store.device)
        """The copy, [layers, tokens, 2 * kv_heads, head_dim]."""
        self._num_before = 0
        """Positions of the slot that the blocks were chosen from."""
        self._num_kept = 0
        self._end = 0

    def fill(self, blocks: Sequence[int], room: int) -> None:
        """Copy these full blocks. Behind the last of them up to ``room`` tokens may follow."""
        self._num_before = self._end = (blocks[-1] + 1) * BLOCK_TOKENS
        self._num_kept = len(blocks) * BLOCK_TOKENS
        self._reserve(self._num_kept + room)
        ids = torch.tensor(blocks, device=self._rows.device)
        for rows, copied in zip(self.source, self._rows, strict=True):
            before = rows[: self._num_before].view(blocks[-1] + 1, -1)
            torch.index_select(before, 0, ids, out=copied[: self._num_kept].view(len(blocks), -1))

    def read(self, layer: int, end: int) -> tuple[Tensor, Tensor]:
        """Return keys and values of one layer up to the slot's ``end``, each [1, kv_heads, tokens, head_dim].

        Layers are read in their order; what they lack behind the blocks is copied from the slot first.
        """
        rows = self._rows[layer]
        shift = self._num_kept - self._num_before
        rows[self._end + shift : end + shift].copy_(self.source[layer][self._end : end])
        if layer == len(self._rows) - 1:
            self._end = end
        keys, values = rows[: end + shift].transpose(0, 1).unsqueeze(0).chunk(2, 1)
        return keys, values

    def _reserve(self, num_rows: int) -> None:
        """Keep the memory that there is where it is enough: fresh memory costs more than the copy."""
        if self._rows.shape[1] < num_rows:
            self._rows = self._rows.new_empty(len(self.source), num_rows, *self._rows.shape[2:])
