"""Attention over the slots of a ragged batch. By PyTorch's kernels it is a call for each segment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from worker.engine.architecture import Architecture
from worker.engine.batch import Layout, Piece, Segment, segments_of
from worker.engine.kv import KVStore
from worker.engine.rotary import Rotary
from worker.engine.weights import LayerWeights


class LayerAttention(Protocol):
    """The attention of one forward pass."""

    def attend(self, index: int, fused: Tensor, layer: LayerWeights) -> Tensor:
        """Rotate, write keys and values to their slots, and return [tokens, heads * head_dim].

        ``fused`` is [tokens, fused heads * head_dim], queries before keys before values, and is written over.
        Layers come in their order, each with its ``index``.
        """
        ...


class Attention(Protocol):
    """Lays out what a forward pass attends to."""

    def begin(self, pieces: Sequence[Piece], layout: Layout, rotary: Rotary) -> LayerAttention:
        """Return the attention of a pass over ``pieces`` whose activations are of the table's dtype."""
        ...


CachedSegment: TypeAlias = tuple[Segment, tuple[Tensor, ...], tuple[Tensor, ...]]
"""A segment with its keys and values by layer."""


class TorchAttention:
    """Any device, any dtype."""

    def __init__(self, architecture: Architecture, store: KVStore) -> None:
        self._architecture = architecture
        self._store = store

    def begin(self, pieces: Sequence[Piece], layout: Layout, rotary: Rotary) -> LayerAttention:
        segments = segments_of(pieces, self._store.dtype, self._store.device)
        return _Step(
            self._architecture,
            self._store,
            rotary.at(layout.positions),
            self._store.places(layout.slots, layout.positions),
            [self._cached(segment, rotary.cos.dtype) for segment in segments],
        )

    def _cached(self, segment: Segment, dtype: torch.dtype) -> CachedSegment:
        keys, values = self._store.read(segment.slots, segment.kv_length)
        if segment.is_chunk and segment.mask is not None:
            segment = replace(segment, mask=segment.mask.to(dtype))
        return segment, keys, values


def norm_heads_(fused: Tensor, layer: LayerWeights, architecture: Architecture) -> None:
    """Norm queries and keys in place where the layer does (Qwen3)."""
    if layer.query_norm is None or layer.key_norm is None:
        return
    shape = architecture
    heads = fused.view(-1, shape.num_fused_heads, shape.head_dim)
    queries, keys = (
        heads[:, : shape.num_heads],
        heads[:, shape.num_heads : shape.num_heads + shape.num_kv_heads],
    )
    queries.copy_(F.rms_norm(queries, (shape.head_dim,), layer.query_norm, shape.norm_eps))
    keys.copy_(F.rms_norm(keys, (shape.head_dim,), layer.key_norm, shape.norm_eps))


@dataclass(frozen=True, slots=True)
class _Step:
    architecture: Architecture
    store: KVStore
    rotary: Rotary
    """The rows of the tokens' positions."""
    written: Tensor
    """int64 [tokens]: which rows of the store are theirs"""
    cached: Sequence[CachedSegment]

    def attend(self, index: int, fused: Tensor, layer: LayerWeights) -> Tensor:
        shape = self.architecture
        norm_heads_(fused, layer, shape)
        heads = fused.view(-1, shape.num_fused_heads, shape.head_dim)
        self.rotary.rotate_(heads[:, : shape.num_heads + shape.num_kv_heads])
        stored = fused.to(self.store.dtype)
        self.store.rows[index].index_copy_(0, self.written, stored[:, shape.num_heads * shape.head_dim :])
        parts = [self._attend(fused if each[0].is_chunk else stored, index, each) for each in self.cached]
        attended = parts[0] if len(parts) == 1 else torch.cat(parts)
        return attended.to(fused.dtype)

    def _attend(self, fused: Tensor, index: int, cached: CachedSegment) -> Tensor:
        """Attend in the dtype of ``fused``.

        A chunk is bound by multiplying, as its products are, and comes in the weights' dtype. A single token
        is bound by reading keys and values, and comes in the dtype that they are stored in.
        """
        segment, all_keys, all_values = cached
        shape = self.architecture
        queries = fused[segment.rows, : shape.num_heads * shape.head_dim].view(
            -1, shape.num_heads, shape.head_dim
        )
        keys, values = all_keys[index], all_values[index]
        if segment.look is not None:
            segment.look.add(queries, keys[0])
        if segment.kept is not None:
            keys, values = segment.kept.read(index, segment.kv_length)
        attended = F.scaled_dot_product_attention(
            segment.as_sequences(queries),
            keys.to(fused.dtype),
            values.to(fused.dtype),
            attn_mask=segment.mask,
            is_causal=segment.is_causal,
            enable_gqa=shape.num_heads != shape.num_kv_heads,
        )
        return segment.as_rows(attended)
