"""Any other causal language model, run by transformers: one forward pass a sequence, the same interface."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, DynamicCache

from worker.engine.architecture import UnsupportedArchitectureError
from worker.engine.batch import Piece
from worker.engine.focus.kept_rows import KeptRows
from worker.engine.linear import KernelsName
from worker.thermo.entropic_time import StepCost

_MAX_CHUNK_ERROR = 0.25
"""Of what the past changes. Roundings in bf16 stay far below it; a past that is lost makes it 1."""


class TransformersModel:
    """An ``AutoModelForCausalLM`` with a cache for each slot.

    Sequences are computed one by one: their caches differ in length, and architectures in how they pad.
    """

    def __init__(self, model: Any, num_slots: int, max_context: int) -> None:
        self.num_slots = num_slots
        self.max_context = max_context
        self.dtype: torch.dtype = model.dtype
        self.widens_products = False
        self.kernels: KernelsName = "torch"
        self.num_blocks = 0
        self.can_drop_blocks = False
        self.step_cost = StepCost(model.num_parameters(), kv_width=0)  # caches differ too much to count
        self.can_rewind = False  # a window or a recurrent state has lost what was before
        self._model = model
        self._caches: dict[int, Any] = {}
        self.vocab_size = self._check_that_the_past_counts()

    @classmethod
    def load(cls, folder: Path, num_slots: int, max_context: int, dtype: torch.dtype) -> TransformersModel:
        """Load safetensors, never code or pickles. Raises UnsupportedArchitectureError, OSError."""
        device = "cuda" if torch.cuda.is_available() else "cpu"
        try:
            model = AutoModelForCausalLM.from_pretrained(
                str(folder), dtype=dtype, trust_remote_code=False, use_safetensors=True
            )
        except ValueError as error:  # what transformers raises for models that are not causal decoders
            raise UnsupportedArchitectureError(str(error)) from error
        positions = getattr(model.config.get_text_config(), "max_position_embeddings", None) or max_context
        return cls(model.eval().to(device), num_slots, min(max_context, positions))

    @property
    def output_embedding(self) -> Tensor | None:
        head = self._model.get_output_embeddings()
        return None if head is None else head.weight.detach().cpu()

    @torch.inference_mode()
    def forward(self, pieces: Sequence[Piece]) -> Tensor:
        return torch.cat([self._extend(piece) for piece in pieces])

    def save_blocks(self, slot: int, first: int, blocks: Sequence[int]) -> None:
        raise NotImplementedError("no blocks are kept")

    def load_blocks(self, blocks: Sequence[int], slot: int) -> None:
        raise NotImplementedError("no blocks are kept")

    def kept_rows(self, slot: int) -> KeptRows:
        raise NotImplementedError("caches keep everything")

    def clear(self, slot: int, num_tokens: int) -> None:
        self._caches.pop(slot, None)

    def _extend(self, piece: Piece) -> Tensor:
        """Return the logits that the piece wants, [num_logits, vocab]."""
        cache = self._caches.setdefault(piece.slot, DynamicCache(config=self._model.config))
        ids = torch.tensor([piece.token_ids], device=self._model.device)
        logits: Tensor = self._model(input_ids=ids, cache=cache, use_cache=True).logits
        return logits[0, logits.shape[1] - piece.num_logits :].cpu()

    def _check_that_the_past_counts(self) -> int:
        """Read four tokens at once and in two chunks, and return the number of logits.

        A model that keeps its past elsewhere than in the cache, cannot go on from it by more than a token, or
        looks ahead would decode wrongly and not say so. Raises UnsupportedArchitectureError.
        """
        whole = self._read_alone((0, 1, 2, 3))
        in_chunks = self._read_alone((0, 1), (2, 3))
        without_past = self._read_alone((2, 3))
        if not (in_chunks - whole).norm() < _MAX_CHUNK_ERROR * (without_past - whole).norm():
            name = type(self._model).__name__
            raise UnsupportedArchitectureError(f"{name} does not continue a prompt from its cache")
        return whole.shape[-1]

    @torch.inference_mode()
    def _read_alone(self, *chunks: tuple[int, ...]) -> Tensor:
        logits, start = torch.empty(0), 0
        for chunk in chunks:
            logits = self._extend(Piece(0, start, chunk, num_logits=1))[0].float()
            start += len(chunk)
        self._caches.clear()
        return logits
