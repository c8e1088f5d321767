"""Attention of a whole ragged batch in one call a layer: ``attend.c`` says how."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
import torch.nn.functional as F
from torch import Tensor

from worker.engine.architecture import Architecture
from worker.engine.attention import LayerAttention, norm_heads_
from worker.engine.batch import Layout, Piece
from worker.engine.kv import KVStore
from worker.engine.native.kernels import Kernels, as_rows, kernels_at_hand
from worker.engine.rotary import Rotary
from worker.engine.weights import LayerWeights


class NativeAttention:
    """Reads keys and values as they are stored, in bf16 on the CPU; queries and sums are float32.

    For architectures that ``kernels.fit``.
    """

    def __init__(self, architecture: Architecture, store: KVStore) -> None:
        self._kernels = kernels_at_hand()
        self._architecture = architecture
        self._store = store

    def begin(self, pieces: Sequence[Piece], layout: Layout, rotary: Rotary) -> LayerAttention:
        starts = accumulate((len(piece.token_ids) for piece in pieces[:-1]), initial=0)
        rows = list(zip(pieces, starts, strict=True))
        in_slots = [
            (row, len(piece.token_ids), piece.slot * self._store.slot_tokens, piece.start)
            for piece, row in rows
            if piece.kept is None
        ]
        return _Step(
            self._kernels,
            self._architecture,
            self._store,
            rotary,
            layout.positions,
            self._store.places(layout.slots, layout.positions),
            torch.tensor(in_slots, dtype=torch.int64),
            tuple(_Apart(row, piece) for piece, row in rows if piece.kept or piece.look),
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
    rotary: Rotary
    positions: Tensor
    """int64 [tokens]"""
    written: Tensor
    """int64 [tokens]: which rows of the store are theirs"""
    in_slots: Tensor
    """int64 [pieces, 4]: first row, rows, first token among all of the store, position"""
    apart: tuple[_Apart, ...]

    def attend(self, index: int, fused: Tensor, layer: LayerWeights) -> Tensor:
        shape = self.architecture
        fused = as_rows(fused, shape.num_fused_heads * shape.head_dim)
        norm_heads_(fused, layer, shape)
        tokens = self.store.rows[index].data_ptr()
        self.kernels.rotate_and_store(
            fused.data_ptr(),
            len(fused),
            shape.num_heads,
            shape.num_kv_heads,
            shape.head_dim,
            self.rotary.cos.data_ptr(),
            self.rotary.signed_sin.data_ptr(),
            self.positions.data_ptr(),
            self.written.data_ptr(),
            tokens,
        )
        out = torch.empty(len(fused), shape.num_heads * shape.head_dim)
        if len(self.in_slots):
            self._call(fused, tokens, self.in_slots, out)
        for each in self.apart:
            self._attend_apart(index, fused, each, out)
        return out

    def _attend_apart(self, index: int, fused: Tensor, each: _Apart, out: Tensor) -> None:
        piece = each.piece
        if piece.look is not None:
            shape = self.architecture
            rows = fused[each.row : each.row + len(piece.token_ids), : shape.num_heads * shape.head_dim]
            keys, _ = self.store.read(slice(piece.slot, piece.slot + 1), piece.end)
            piece.look.add(rows.view(-1, shape.num_heads, shape.head_dim), keys[index][0])
        if piece.kept is not None:
            kept_keys, kept_values = piece.kept.read(index, piece.end)
            if self._are_as_stored(kept_keys, kept_values):
                place = torch.tensor([[each.row, 1, 0, kept_keys.shape[2] - 1]])
                self._call(fused, kept_keys.data_ptr(), place, out)
            else:
                out[each.row] = self._attend_elsewhere(fused[each.row], kept_keys, kept_values)

    def _are_as_stored(self, keys: Tensor, values: Tensor) -> bool:
        """Say whether keys and values [1, kv_heads, tokens, head_dim] lie as they do in a slot."""
        head_dim, width = self.architecture.head_dim, self.store.rows[0].shape[1]
        strides = (head_dim, width, 1)
        to_values = width // 2 * keys.element_size()
        return (
            keys.stride()[1:] == values.stride()[1:] == strides
            and values.data_ptr() - keys.data_ptr() == to_values
        )

    def _attend_elsewhere(self, fused: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Attend with one row, by PyTorch, to keys and values that lie in any other way."""
        shape = self.architecture
        queries = fused[: shape.num_heads * shape.head_dim].view(1, shape.num_heads, 1, shape.head_dim)
        attended = F.scaled_dot_product_attention(queries, keys.float(), values.float(), enable_gqa=True)
        return attended.flatten()

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
