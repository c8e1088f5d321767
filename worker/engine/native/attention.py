"""Attention of a whole ragged batch in one call a layer: ``attend.c`` says how."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from worker.engine.architecture import Architecture
from worker.engine.attention import LayerAttention
from worker.engine.batch import Piece
from worker.engine.kv import KVStore
from worker.engine.native.kernels import (
    DIMS_AT_ONCE,
    MAX_HEAD_DIM,
    MAX_HEADS_PER_KEY_HEAD,
    Kernels,
    native_kernels,
)


def can_attend(architecture: Architecture, dtype: torch.dtype, device: torch.device) -> bool:
    """Say whether the kernel is there, and for heads like these and keys of this type."""
    return (
        native_kernels() is not None
        and device.type == "cpu"
        and dtype == torch.bfloat16
        and architecture.head_dim % DIMS_AT_ONCE == 0
        and architecture.head_dim <= MAX_HEAD_DIM
        and architecture.num_heads <= MAX_HEADS_PER_KEY_HEAD * architecture.num_kv_heads
    )


class NativeAttention:
    """Reads keys and values as they are stored; queries and sums are float32."""

    def __init__(self, architecture: Architecture, store: KVStore) -> None:
        kernels = native_kernels()
        assert kernels is not None, "can_attend says so"
        self._kernels = kernels
        self._architecture = architecture
        self._store = store

    def begin(self, pieces: Sequence[Piece], dtype: torch.dtype) -> LayerAttention:
        starts = accumulate((len(piece.token_ids) for piece in pieces[:-1]), initial=0)
        rows = list(zip(pieces, starts, strict=True))
        in_slots = [
            (row, len(piece.token_ids), piece.slot * self._store.slot_tokens, piece.start)
            for piece, row in rows
            if piece.kept is None
        ]
        apart = tuple(_Apart(row, piece) for piece, row in rows if piece.kept or piece.look)
        return _Step(
            self._kernels, self._architecture, self._store, torch.tensor(in_slots, dtype=torch.int64), apart
        )


@dataclass(frozen=True, slots=True)
class _Apart:
    """A piece with something of its own."""

    row: int
    piece: Piece


@dataclass(frozen=True, slots=True)
class _Step:
    kernels: Kernels
    architecture: Architecture
    store: KVStore
    in_slots: Tensor
    """int64 [pieces, 4]: first row, rows, first token among all of the store, position"""
    apart: tuple[_Apart, ...]

    def attend(self, layer: int, fused: Tensor, stored: Tensor) -> Tensor:
        out = torch.empty(len(fused), self.architecture.num_heads * self.architecture.head_dim)
        if len(self.in_slots):
            self._call(fused, self.store.rows[layer].data_ptr(), self.in_slots, out)
        for each in self.apart:
            self._attend_apart(layer, fused, each, out)
        return out

    def _attend_apart(self, layer: int, fused: Tensor, each: _Apart, out: Tensor) -> None:
        piece = each.piece
        if piece.look is not None:
            shape = self.architecture
            rows = fused[each.row : each.row + len(piece.token_ids), : shape.num_heads * shape.head_dim]
            keys, _ = self.store.read(slice(piece.slot, piece.slot + 1), piece.end)
            piece.look.add(rows.view(-1, shape.num_heads, shape.head_dim), keys[layer][0])
        if piece.kept is not None:
            keys_kept, _ = piece.kept.read(layer, piece.end)
            place = torch.tensor([[each.row, 1, 0, keys_kept.shape[2] - 1]])
            self._call(fused, keys_kept.data_ptr(), place, out)

    def _call(self, fused: Tensor, tokens: int, pieces: Tensor, out: Tensor) -> None:
        shape = self.architecture
        self.kernels.attend(
            fused.data_ptr(),
            fused.shape[1],
            shape.num_heads,
            shape.num_kv_heads,
            shape.head_dim,
            tokens,
            pieces.data_ptr(),
            len(pieces),
            shape.head_dim**-0.5,
            torch.get_num_threads(),
            out.data_ptr(),
        )
