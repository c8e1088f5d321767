"""Which dtype to compute in, on this machine and for this model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import torch

from worker.engine.architecture import Architecture
from worker.engine.int8 import int8_linear, spread_int8_linear
from worker.engine.linear import KernelsName, PlainLinear, packed_linear
from worker.engine.native.int8 import native_int8_linear, native_spread_int8_linear
from worker.engine.native.kernels import native_kernels
from worker.engine.native.linear import native_gated, native_linear, native_normed
from worker.engine.rotation import Rotation
from worker.engine.weights import Placement

Dtype: TypeAlias = Literal["auto", "bf16", "fp32"]

KernelChoice: TypeAlias = Literal["auto", "torch"]
"""``auto`` takes our own kernels where they run, ``torch`` keeps to PyTorch's and oneDNN's."""

WeightFormat: TypeAlias = Literal["full", "int8"]
"""What the weights are rounded to: the dtype alone, or 8-bit integers, which changes what the model says."""

MAX_WIDE_BYTES = 2 << 30
"""A model whose float32 copy is larger keeps to bf16 alone."""


class UnsupportedFormatError(Exception):
    """Weights cannot be had in this format here."""


@dataclass(frozen=True, slots=True)
class Processor:
    """What the device multiplies well."""

    device: torch.device
    has_bf16: bool
    has_bf16_tiles: bool
    """AMX: bf16 products are faster than float32's at every size."""
    can_prepack: bool
    """oneDNN is there, and has kernels for bf16."""
    has_native_kernels: bool = False
    """Ours run here and fit the model, and no AMX is there, with which they were not measured."""
    has_int8_dot_products: bool = False
    """AVX-512 VNNI, AVX-VNNI or AMX, and oneDNN: without them its sums of byte products saturate."""

    @classmethod
    def best(cls) -> Processor:
        """CUDA where torch sees it, else the CPU."""
        if torch.cuda.is_available():
            return cls(torch.device("cuda"), has_bf16=True, has_bf16_tiles=True, can_prepack=False)
        features = torch.cpu.get_capabilities()
        has_tiles = bool(features.get("amx_bf16"))
        has_onednn = bool(torch.backends.mkldnn.is_available())  # type: ignore[no-untyped-call]
        has_dot_products = any(features.get(name) for name in ("avx512_vnni", "avx_vnni", "amx_int8"))
        return cls(
            torch.device("cpu"),
            has_bf16=has_tiles or bool(features.get("avx512_bf16")),
            has_bf16_tiles=has_tiles,
            has_native_kernels=not has_tiles and native_kernels() is not None,
            can_prepack=has_onednn and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported()),
            has_int8_dot_products=has_onednn and has_dot_products,
        )


def choose_dtype(wanted: Dtype, processor: Processor) -> torch.dtype:
    """``auto`` is bf16 where the processor multiplies it or our kernels widen it, else fp32."""
    if wanted == "auto":
        return torch.bfloat16 if processor.has_bf16 or processor.has_native_kernels else torch.float32
    return torch.bfloat16 if wanted == "bf16" else torch.float32


def choose_placements(
    dtype: torch.dtype, processor: Processor, architecture: Architecture
) -> tuple[Placement, Placement | None]:
    """Return how to lay the weights out, and how to lay out a second, float32 copy where one pays.

    Single tokens are bound by reading weights, which bf16 halves. Prompts and large batches are bound by
    multiplying, and AVX-512 without AMX multiplies float32 up to 1.7 times faster than bf16. Native kernels
    read the one and multiply the other, so they need no copy.
    """
    device = processor.device
    if dtype == torch.float32 or device.type != "cpu":
        return Placement(dtype, dtype, device, PlainLinear, folds_norms=False), None
    if processor.has_native_kernels:
        return Placement(
            dtype,
            torch.float32,
            device,
            native_linear,
            folds_norms=True,
            join_norm=native_normed,
            gated=native_gated,
            kernels="native",
        ), None
    make_linear = packed_linear if processor.can_prepack else PlainLinear
    kernels: KernelsName = "onednn" if processor.can_prepack else "torch"
    narrow = Placement(dtype, dtype, device, make_linear, folds_norms=True, kernels=kernels)
    if processor.has_bf16_tiles or 4 * architecture.num_parameters > MAX_WIDE_BYTES:
        return narrow, None
    return narrow, Placement(dtype, torch.float32, device, make_linear, folds_norms=True, kernels=kernels)


def int8_placement(dtype: torch.dtype, processor: Processor, architecture: Architecture) -> Placement:
    """Return how to lay int8 weights out: one set for every size, since integers are the fastest at all.

    They are rounded once, from what the checkpoint holds; ``dtype`` is that of keys and values, which native
    kernels want in bf16. Raises UnsupportedFormatError.
    """
    if not processor.has_int8_dot_products:
        raise UnsupportedFormatError(
            "int8 weights need a CPU with AVX-512 VNNI, AVX-VNNI or AMX, and torch with oneDNN; "
            f"this worker computes on {processor.device.type} without them"
        )
    placement = Placement(
        torch.float32,
        torch.float32,
        processor.device,
        int8_linear,
        folds_norms=True,
        rotation=Rotation.of(architecture.hidden_size),
        make_down=spread_int8_linear,
        kernels="onednn",
    )
    native = native_kernels() if processor.has_native_kernels and dtype == torch.bfloat16 else None
    if native is None or not native.has_int8:
        return placement
    return replace(
        placement,
        make_linear=native_int8_linear,
        make_down=native_spread_int8_linear,
        join_norm=native_normed,
        gated=native_gated,
        kernels="native",
    )
