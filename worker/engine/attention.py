"""Attention over the slots of a ragged batch, by PyTorch's kernels: a call for each segment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from worker.engine.architecture import Architecture
from worker.engine.batch import Piece, Segment, segments_of
from worker.engine.kv import KVStore


class LayerAttention(Protocol):
    """The attention of one forward pass."""

    def attend(self, layer: int, fused: Tensor, stored: Tensor) -> Tensor:
        """Return [tokens, heads * head_dim] of a layer; layers come in their order.

        ``fused`` [tokens, fused heads * head_dim] begins with rotated queries, and ``stored`` is the same in
        the dtype of the slots, which hold the keys and values of these tokens already.
        """
        ...


class Attention(Protocol):
    """Lays out what a forward pass attends to."""

    def begin(self, pieces: Sequence[Piece], dtype: torch.dtype) -> LayerAttention:
        """Return the attention of a pass over ``pieces`` whose activations are of ``dtype``."""
        ...


CachedSegment: TypeAlias = tuple[Segment, tuple[Tensor, ...], tuple[Tensor, ...]]
"""A segment with its keys and values by layer."""


class TorchAttention:
    """Any device, any dtype."""

    def __init__(self, architecture: Architecture, store: KVStore) -> None:
        self._architecture = architecture
        self._store = store

    def begin(self, pieces: Sequence[Piece], dtype: torch.dtype) -> LayerAttention:
        segments = segments_of(pieces, self._store.dtype, self._store.device)
        return _Step(self._architecture, [self._cached(segment, dtype) for segment in segments])

    def _cached(self, segment: Segment, dtype: torch.dtype) -> CachedSegment:
        keys, values = self._store.read(segment.slots, segment.kv_length)
        if segment.is_chunk and segment.mask is not None:
            segment = replace(segment, mask=segment.mask.to(dtype))
        return segment, keys, values


@dataclass(frozen=True, slots=True)
class _Step:
    architecture: Architecture
    cached: Sequence[CachedSegment]

    def attend(self, layer: int, fused: Tensor, stored: Tensor) -> Tensor:
        parts = [self._attend(fused if each[0].is_chunk else stored, layer, each) for each in self.cached]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _attend(self, fused: Tensor, layer: int, cached: CachedSegment) -> Tensor:
        """Attend in the dtype of ``fused``.

        A chunk is bound by multiplying, as its products are, and comes in the weights' dtype. A single token
        is bound by reading keys and values, and comes in the dtype that they are stored in.
        """
        segment, all_keys, all_values = cached
        shape = self.architecture
        queries = fused[segment.rows, : shape.num_heads * shape.head_dim].view(
            -1, shape.num_heads, shape.head_dim
        )
        keys, values = all_keys[layer], all_values[layer]
        if segment.look is not None:
            segment.look.add(queries, keys[0])
        if segment.kept is not None:
            keys, values = segment.kept.read(layer, segment.kv_length)
        attended = F.scaled_dot_product_attention(
            segment.as_sequences(queries),
            keys.to(fused.dtype),
            values.to(fused.dtype),
            attn_mask=segment.mask,
            is_causal=segment.is_causal,
            enable_gqa=shape.num_heads != shape.num_kv_heads,
        )
        return segment.as_rows(attended)
