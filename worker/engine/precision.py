"""Which dtype to compute in, on this machine and for this model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch

from worker.engine.architecture import Architecture
from worker.engine.weights import Placement, PlainLinear, packed_linear

Dtype: TypeAlias = Literal["auto", "bf16", "fp32"]

MAX_WIDE_BYTES = 2 << 30
"""A model whose float32 copy is larger keeps to bf16 alone."""


@dataclass(frozen=True, slots=True)
class Processor:
    """What the device multiplies well."""

    device: torch.device
    has_bf16: bool
    has_bf16_tiles: bool
    """AMX: bf16 products are faster than float32's at every size."""
    can_prepack: bool
    """oneDNN is there, and has kernels for bf16."""

    @classmethod
    def best(cls) -> Processor:
        """CUDA where torch sees it, else the CPU."""
        if torch.cuda.is_available():
            return cls(torch.device("cuda"), has_bf16=True, has_bf16_tiles=True, can_prepack=False)
        features = torch.cpu.get_capabilities()
        has_tiles = bool(features.get("amx_bf16"))
        has_onednn = bool(torch.backends.mkldnn.is_available())  # type: ignore[no-untyped-call]
        return cls(
            torch.device("cpu"),
            has_bf16=has_tiles or bool(features.get("avx512_bf16")),
            has_bf16_tiles=has_tiles,
            can_prepack=has_onednn and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported()),
        )


def choose_dtype(wanted: Dtype, processor: Processor) -> torch.dtype:
    """``auto`` is bf16 where the processor multiplies it, else fp32."""
    if wanted == "auto":
        return torch.bfloat16 if processor.has_bf16 else torch.float32
    return torch.bfloat16 if wanted == "bf16" else torch.float32


def choose_placements(
    dtype: torch.dtype, processor: Processor, architecture: Architecture
) -> tuple[Placement, Placement | None]:
    """Return how to lay the weights out, and how to lay out a second, float32 copy where one pays.

    Single tokens are bound by reading weights, which bf16 halves. Prompts and large batches are bound by
    multiplying, and AVX-512 without AMX multiplies float32 up to 1.7 times faster than bf16.
    """
    device = processor.device
    if dtype == torch.float32 or device.type != "cpu":
        return Placement(dtype, dtype, device, PlainLinear, folds_norms=False), None
    make_linear = packed_linear if processor.can_prepack else PlainLinear
    narrow = Placement(dtype, dtype, device, make_linear, folds_norms=True)
    if processor.has_bf16_tiles or 4 * architecture.num_parameters > MAX_WIDE_BYTES:
        return narrow, None
    return narrow, Placement(dtype, torch.float32, device, make_linear, folds_norms=True)
