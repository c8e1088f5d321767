"""Our own decoder for the Llama family: one forward pass over a ragged batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from worker.engine.architecture import Architecture
from worker.engine.attention import Attention, TorchAttention
from worker.engine.batch import Piece, lay_out
from worker.engine.focus.kept_rows import KeptRows
from worker.engine.kv import KVBlocks, KVStore
from worker.engine.linear import KernelsName
from worker.engine.rotary import Rotary
from worker.engine.weights import DecoderWeights
from worker.thermo.entropic_time import StepCost


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
    def kernels(self) -> KernelsName:
        """Whose products and attention are computed with."""
        ...

    @property
    def widens_products(self) -> bool:
        """Whether large products are computed in float32 although ``dtype`` is another."""
        ...

    @property
    def step_cost(self) -> StepCost:
        """What one token of one sequence multiplies by."""
        ...

    @property
    def can_rewind(self) -> bool:
        """Whether a piece may begin before its slot's end: what lies behind it is forgotten then."""
        ...

    @property
    def num_blocks(self) -> int:
        """Blocks of ``prefix.BLOCK_TOKENS`` tokens that can be kept outside the slots; 0 where none can."""
        ...

    @property
    def can_drop_blocks(self) -> bool:
        """Whether pieces may have ``kept`` and ``look``."""
        ...

    @property
    def output_embedding(self) -> Tensor | None:
        """[vocab, hidden] on the CPU; None where the model does not show it."""
        ...

    def forward(self, pieces: Sequence[Piece]) -> Tensor:
        """Return logits [sum of the pieces' num_logits, vocab] on the CPU, in the order of the pieces.

        Pieces of one token come first, in the order of their slots.
        """
        ...

    def save_blocks(self, slot: int, first: int, blocks: Sequence[int]) -> None:
        """Copy a slot's blocks, from number ``first`` on, into the kept ``blocks``."""
        ...

    def load_blocks(self, blocks: Sequence[int], slot: int) -> None:
        """Copy kept blocks to the beginning of a slot."""
        ...

    def kept_rows(self, slot: int) -> KeptRows:
        """Return room for a copy of some of a slot's blocks."""
        ...

    def clear(self, slot: int, num_tokens: int) -> None:
        """Forget a slot that at any time held up to ``num_tokens`` tokens."""
        ...


@dataclass(frozen=True, slots=True)
class Precision:
    """A set of weights with the rotary table of the same dtype."""

    weights: DecoderWeights
    rotary: Rotary


@dataclass(frozen=True, slots=True)
class Embeddings:
    """[vocab, hidden] each, and the same tensor where the model ties them."""

    input: Tensor
    output: Tensor
    """On the CPU, as the checkpoint has it: not folded, not packed."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Keys and values of what runs, and of the beginnings that are kept for others."""

    slots: KVStore
    blocks: KVBlocks


_WIDE_FROM_TOKENS = 18
"""Measured where bf16 and float32 cost the same; see ``precision.choose_placements`` for why."""


class Decoder:
    """A Llama-family model with its KV slots.

    The residual stream is float32 whatever the weights are. Batches of 18 tokens or more are computed with
    ``wide``, the same weights in float32, where the CPU multiplies those faster.
    """

    def __init__(
        self,
        architecture: Architecture,
        memory: Memory,
        embeddings: Embeddings,
        narrow: Precision,
        wide: Precision | None = None,
        *,
        attention: Attention | None = None,
        kernels: KernelsName = "torch",
    ) -> None:
        store = memory.slots
        self.output_embedding: Tensor | None = embeddings.output
        self.vocab_size = architecture.vocab_size
        self.num_slots = store.num_slots
        self.max_context = store.slot_tokens
        self.dtype = store.dtype
        self.step_cost = StepCost(architecture.num_parameters, architecture.kv_width)
        self._store = store
        self._blocks = memory.blocks
        self.num_blocks = memory.blocks.num_blocks
        self._embedding = embeddings.input
        self._narrow = narrow
        self._wide = wide
        self.widens_products = (wide or narrow).weights.dtype != store.dtype
        self.kernels: KernelsName = kernels
        self._attention = attention or TorchAttention(architecture, store)
        self.can_rewind = True  # masked, and written over by the next tokens
        self.can_drop_blocks = True

    @torch.inference_mode()
    def forward(self, pieces: Sequence[Piece]) -> Tensor:
        layout = lay_out(pieces, self._store.device)
        precision = self._precision(layout.num_tokens)
        attention = self._attention.begin(pieces, layout, precision.rotary)
        residual = F.embedding(layout.token_ids, self._embedding).float()
        normed = torch.empty_like(residual, dtype=precision.weights.dtype)
        for index, layer in enumerate(precision.weights.layers):
            attended = attention.attend(index, layer.fused_qkv(residual, normed), layer)
            residual.add_(layer.attention_output(attended))
            residual.add_(layer.down(precision.weights.gated(layer.gate_up(residual, normed))))

        if layout.sampled_rows is not None:
            residual = residual[layout.sampled_rows]
        return precision.weights.head(residual, normed[: residual.shape[0]]).cpu()

    def save_blocks(self, slot: int, first: int, blocks: Sequence[int]) -> None:
        self._blocks.save(slot, first, blocks)

    def load_blocks(self, blocks: Sequence[int], slot: int) -> None:
        self._blocks.load(blocks, slot)

    def kept_rows(self, slot: int) -> KeptRows:
        return KeptRows(self._store, slot)

    def clear(self, slot: int, num_tokens: int) -> None:
        self._store.clear(slot, num_tokens)

    def _precision(self, num_tokens: int) -> Precision:
        return self._wide if self._wide and num_tokens >= _WIDE_FROM_TOKENS else self._narrow
