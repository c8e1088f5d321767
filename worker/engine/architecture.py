"""The dimensions of a Llama-family decoder, read from a Hugging Face configuration."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

LLAMA_FAMILY = frozenset({"llama", "mistral", "qwen2", "qwen3"})


class UnsupportedArchitectureError(Exception):
    """This model is not of the Llama family, or uses a variant of it that our decoder lacks."""


@dataclass(frozen=True, slots=True)
class Architecture:
    """What the decoder needs to know of its model."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    norm_eps: float
    has_tied_head: bool
    max_positions: int
    rotary: Mapping[str, Any]
    """rope_type, rope_theta and, for llama3 and linear, the scaling's parameters."""

    @property
    def num_fused_heads(self) -> int:
        """Heads in the fused projection: queries, keys, values."""
        return self.num_heads + 2 * self.num_kv_heads

    @property
    def num_parameters(self) -> int:
        """Weights that a step multiplies by: projections and output embedding."""
        attention = self.hidden_size * self.head_dim * (self.num_fused_heads + self.num_heads)
        layer = attention + 3 * self.hidden_size * self.intermediate_size
        return self.num_layers * layer + self.vocab_size * self.hidden_size

    @property
    def kv_width(self) -> int:
        """Numbers of one position, keys and values of all layers."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim

    @classmethod
    def from_config(cls, config: Any) -> Architecture:
        """Read a transformers config. Raises UnsupportedArchitectureError with what is missing."""
        reason = _why_unsupported(config)
        if reason:
            raise UnsupportedArchitectureError(reason)
        num_heads: int = config.num_attention_heads
        return cls(
            vocab_size=config.vocab_size,
            hidden_size=config.hidden_size,
            intermediate_size=config.intermediate_size,
            num_layers=config.num_hidden_layers,
            num_heads=num_heads,
            num_kv_heads=config.num_key_value_heads or num_heads,
            head_dim=getattr(config, "head_dim", None) or config.hidden_size // num_heads,
            norm_eps=config.rms_norm_eps,
            has_tied_head=bool(config.tie_word_embeddings),
            max_positions=_max_positions(config),
            rotary=dict(config.rope_parameters),
        )

    def inverse_frequencies(self) -> Tensor:
        """Return the rotary frequencies in radians per position, float32 [head_dim / 2].

        The llama3 form (Llama 3.1's) divides long wavelengths by ``factor``, leaves short ones alone and
        blends linearly between them.
        """
        exponents = torch.arange(0, self.head_dim, 2, dtype=torch.float32) / self.head_dim
        frequencies: Tensor = 1.0 / (self.rotary["rope_theta"] ** exponents)
        match self.rotary["rope_type"]:
            case "linear":
                return frequencies / float(self.rotary["factor"])
            case "llama3":
                return self._llama3_scaled(frequencies)
        return frequencies

    def _llama3_scaled(self, frequencies: Tensor) -> Tensor:
        factor, low, high, original = (
            float(self.rotary[name])
            for name in ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
        )
        turns = original * frequencies / (2 * math.pi)
        blend = ((turns - low) / (high - low)).clamp(0.0, 1.0)
        return frequencies / factor * (1 - blend) + frequencies * blend


_ROPE_TYPES = frozenset({"default", "linear", "llama3"})


def _why_unsupported(config: Any) -> str:
    if config.model_type not in LLAMA_FAMILY:
        return f"model type {config.model_type!r} is not one of {sorted(LLAMA_FAMILY)}"
    if getattr(config, "quantization_config", None):
        return "the checkpoint is quantised"
    if config.hidden_act != "silu":
        return f"activation {config.hidden_act!r} is not 'silu'"
    rotary = config.rope_parameters
    if rotary["rope_type"] not in _ROPE_TYPES:
        return f"rope type {rotary['rope_type']!r} is not one of {sorted(_ROPE_TYPES)}"
    if rotary.get("partial_rotary_factor", 1.0) != 1.0:
        return "only a part of each head is rotated"
    return ""


def _max_positions(config: Any) -> int:
    """Positions the decoder may use: inside a sliding window, full attention is the same thing."""
    window = getattr(config, "sliding_window", None)
    positions: int = config.max_position_embeddings
    return min(positions, window) if window else positions
