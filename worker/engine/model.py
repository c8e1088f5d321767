"""Our own decoder for the Llama family: one forward pass over a ragged batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from worker.engine.architecture import Architecture
from worker.engine.batch import Layout, Piece, Segment, lay_out
from worker.engine.kv import KVStore
from worker.engine.weights import DecoderWeights, LayerWeights


class LanguageModel(Protocol):
    """What the engine asks of a model. Slots and positions are the caller's to keep consistent."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def max_context(self) -> int: ...

    @property
    def num_slots(self) -> int: ...

    @property
    def dtype(self) -> torch.dtype: ...

    @property
    def output_embedding(self) -> Tensor | None:
        """[vocab, hidden]"""
        ...

    def forward(self, pieces: Sequence[Piece]) -> Tensor:
        """Return logits [pieces that want them, vocab] on the CPU, in the order of the pieces."""
        ...

    def clear(self, slot: int, num_tokens: int) -> None:
        """Forget a slot that held ``num_tokens`` tokens."""
        ...


@dataclass(frozen=True, slots=True)
class RotaryTables:
    """cos and sin by position, [positions, 1, head_dim]; the first half of sin is negated (rotate_half)."""

    cos: Tensor
    signed_sin: Tensor

    @classmethod
    def of(cls, architecture: Architecture, num_positions: int) -> RotaryTables:
        angles = torch.arange(num_positions).float()[:, None] * architecture.inverse_frequencies()
        cos, sin = angles.cos(), angles.sin()
        return cls(torch.cat((cos, cos), -1)[:, None], torch.cat((-sin, sin), -1)[:, None])

    def to(self, dtype: torch.dtype, device: torch.device) -> RotaryTables:
        return RotaryTables(self.cos.to(device, dtype), self.signed_sin.to(device, dtype))

    def at(self, positions: Tensor) -> RotaryTables:
        return RotaryTables(self.cos[positions], self.signed_sin[positions])

    def rotate_(self, heads: Tensor) -> None:
        """Rotate queries and keys [tokens, heads, head_dim] in place."""
        swapped = heads.roll(heads.shape[-1] // 2, -1)
        heads.mul_(self.cos).add_(swapped.mul_(self.signed_sin))


@dataclass(frozen=True, slots=True)
class Precision:
    """One set of weights and the tables of the same dtype."""

    weights: DecoderWeights
    rotary: RotaryTables


class Decoder:
    """A Llama-family model with its KV slots."""

    def __init__(
        self,
        architecture: Architecture,
        store: KVStore,
        narrow: Precision,
        wide: Precision | None = None,
    ) -> None:
        self._architecture = architecture
        self._store = store
        self._narrow = narrow
        self._wide = wide

    @property
    def vocab_size(self) -> int:
        return self._architecture.vocab_size

    @property
    def max_context(self) -> int:
        return self._store.layers[0].shape[2]

    @property
    def num_slots(self) -> int:
        return self._store.layers[0].shape[0]

    @property
    def dtype(self) -> torch.dtype:
        return self._store.dtype

    @property
    def output_embedding(self) -> Tensor | None:
        return self._narrow.weights.embedding if self._architecture.has_tied_head else None

    def clear(self, slot: int, num_tokens: int) -> None:
        self._store.clear(slot, num_tokens)

    def forward(self, pieces):
        with torch.inference_mode():
            layout = lay_out(pieces, self._store.dtype, torch.device("cpu"))
            p = self._wide if self._wide and layout.num_tokens >= 16 else self._narrow
            rotary = p.rotary.at(layout.positions)
            x = F.embedding(layout.token_ids, p.weights.embedding)
            heads = torch.arange(2 * self._architecture.num_kv_heads)
            where = (layout.slots[:, None], heads[None], layout.positions[:, None])
            for layer, cache in zip(p.weights.layers, self._store.layers):
                x = self._attend(x, layer, cache, layout, rotary, where)
                x = self._mlp(x, layer)
            if layout.sampled_rows is not None:
                x = x[layout.sampled_rows]
            return p.weights.head(self._norm(x, p.weights.norm)).cpu()

    def _norm(self, x, w):
        return F.rms_norm(x, (x.shape[-1],), w, self._architecture.norm_eps)

    def _attend(self, x, layer, cache, layout, rotary, where):
        a = self._architecture
        nq, nkv = a.num_heads, a.num_kv_heads
        fused = layer.fused_qkv(self._norm(x, layer.attention_norm)).view(-1, a.num_fused_heads, a.head_dim)
        rotary.rotate_(fused[:, : nq + nkv])
        cache.index_put_(where, fused[:, nq:].to(cache.dtype))
        q = fused[:, :nq].to(cache.dtype)
        outs = []
        for s in layout.segments:
            kv = cache[s.slots]
            o = F.scaled_dot_product_attention(
                q[s.rows].unflatten(0, (s.num_sequences, -1)).transpose(1, 2),
                kv[:, :nkv, : s.kv_length],
                kv[:, nkv:, : s.kv_length],
                attn_mask=s.mask,
                is_causal=s.is_causal,
                enable_gqa=nq != nkv,
            )
            outs.append(o.transpose(1, 2).reshape(-1, nq * a.head_dim))
        o = outs[0] if len(outs) == 1 else torch.cat(outs)
        return layer.attention_output.plus(o.to(x.dtype), x)

    def _mlp(self, x, layer):
        gu = layer.gate_up(self._norm(x, layer.mlp_norm))
        g, u = gu.chunk(2, -1)
        return layer.down.plus(F.silu(g).mul_(u), x)
