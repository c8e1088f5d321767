"""Our own decoder for the Llama family: one forward pass over a ragged batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from worker.engine.architecture import Architecture
from worker.engine.batch import Piece, Segment, lay_out
from worker.engine.kv import KVStore
from worker.engine.rotary import Rotary
from worker.engine.weights import DecoderWeights, LayerWeights


class LanguageModel(Protocol):
    """What the engine asks of a model. Slots and positions are the caller's to keep consistent."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def num_slots(self) -> int: ...

    @property
    def max_context(self) -> int:
        """Tokens a slot holds, prompt and completion together."""
        ...

    @property
    def dtype(self) -> torch.dtype: ...

    @property
    def output_embedding(self) -> Tensor | None:
        """[vocab, hidden] on the CPU; None where the model does not show it."""
        ...

    def forward(self, pieces: Sequence[Piece]) -> Tensor:
        """Return logits [pieces that want them, vocab] on the CPU, in the order of the pieces.

        Pieces of one token come first, in the order of their slots.
        """
        ...

    def clear(self, slot: int, num_tokens: int) -> None:
        """Forget a slot that held ``num_tokens`` tokens."""
        ...


@dataclass(frozen=True, slots=True)
class Precision:
    """A set of weights with the rotary table of the same dtype."""

    weights: DecoderWeights
    rotary: Rotary


_WIDE_FROM_TOKENS = 16
"""Measured where bf16 and float32 cost the same; see ``precision.choose_placements`` for why."""


class Decoder:
    """A Llama-family model with its KV slots.

    The residual stream is float32 whatever the weights are. Batches of 16 tokens or more are computed with
    ``wide``, the same weights in float32, where the CPU multiplies those faster.
    """

    def __init__(
        self,
        architecture: Architecture,
        store: KVStore,
        output_embedding: Tensor,
        narrow: Precision,
        wide: Precision | None = None,
    ) -> None:
        self.output_embedding: Tensor | None = output_embedding
        self.vocab_size = architecture.vocab_size
        self.num_slots = store.num_slots
        self.max_context = store.slot_tokens
        self.dtype = narrow.weights.dtype
        self._architecture = architecture
        self._store = store
        self._narrow = narrow
        self._wide = wide

    @torch.inference_mode()
    def forward(self, pieces: Sequence[Piece]) -> Tensor:
        layout = lay_out(pieces, self._store.dtype, self._store.device)
        precision = self._precision(layout.num_tokens)
        rotary = precision.rotary.at(layout.positions)
        written = layout.slots * self._store.slot_tokens + layout.positions
        cached = [
            (segment, *self._store.read(segment.slots, segment.kv_length)) for segment in layout.segments
        ]

        residual = F.embedding(layout.token_ids, precision.weights.embedding).float()
        for index, layer in enumerate(precision.weights.layers):
            fused = layer.fused_qkv(residual)
            queries, keys_values = self._split(fused, layer, rotary)
            self._store.rows[index].index_copy_(0, written, keys_values.to(self._store.dtype))
            parts = [self._attend(queries, keys[index], values[index], at) for at, keys, values in cached]
            attended = parts[0] if len(parts) == 1 else torch.cat(parts)
            residual.add_(layer.attention_output(attended.to(fused.dtype)))
            residual.add_(layer.down(_gated(layer.gate_up(residual))))

        if layout.sampled_rows is not None:
            residual = residual[layout.sampled_rows]
        return precision.weights.head(residual).cpu()

    def clear(self, slot: int, num_tokens: int) -> None:
        self._store.clear(slot, num_tokens)

    def _precision(self, num_tokens: int) -> Precision:
        return self._wide if self._wide and num_tokens >= _WIDE_FROM_TOKENS else self._narrow

    def _split(self, fused: Tensor, layer: LayerWeights, rotary: Rotary) -> tuple[Tensor, Tensor]:
        """Rotate in place and return queries [tokens, heads, head_dim] and the rows to store."""
        shape = self._architecture
        heads = fused.view(-1, shape.num_fused_heads, shape.head_dim)
        queries = heads[:, : shape.num_heads]
        if layer.query_norm is not None and layer.key_norm is not None:
            keys = heads[:, shape.num_heads : shape.num_heads + shape.num_kv_heads]
            queries.copy_(F.rms_norm(queries, (shape.head_dim,), layer.query_norm, shape.norm_eps))
            keys.copy_(F.rms_norm(keys, (shape.head_dim,), layer.key_norm, shape.norm_eps))
        rotary.rotate_(heads[:, : shape.num_heads + shape.num_kv_heads])
        return queries, fused[:, shape.num_heads * shape.head_dim :]

    def _attend(self, queries: Tensor, keys: Tensor, values: Tensor, segment: Segment) -> Tensor:
        """Attend in one segment, [rows, heads * head_dim].

        queries [all rows, heads, head_dim]; keys and values [sequences, kv_heads, tokens, head_dim].
        """
        shape = self._architecture
        num_heads, head_dim = shape.num_heads, shape.head_dim
        rows = queries[segment.rows].to(keys.dtype)
        attended = F.scaled_dot_product_attention(
            rows.view(segment.num_sequences, -1, num_heads, head_dim).transpose(1, 2),
            keys,
            values,
            attn_mask=segment.mask,
            is_causal=segment.is_causal,
            enable_gqa=num_heads != shape.num_kv_heads,
        )
        return attended.transpose(1, 2).reshape(-1, num_heads * head_dim)


def _gated(gate_up: Tensor) -> Tensor:
    gate, up = gate_up.chunk(2, -1)
    return F.silu(gate).mul_(up)
