"""Projections in 8-bit integers: a weight has a scale for each output, an activation one for each row.

Products and sums are exact in 32-bit integers, so a row's result does not depend on its batch. What is lost
is lost by rounding to 8 bits; ``docs/decoding.md`` says how much, ``rotation.py`` what is done about it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from worker.engine.huge_pages import MemoryRange
from worker.engine.linear import PACKED_FOR_ROWS, Linear, memory_of
from worker.engine.rotation import hadamard, largest_power_of_two

LARGEST_CODE = 127
"""Codes are symmetric around 0: -128 is not used."""
ZERO_POINT = 128
"""oneDNN's fast kernels take activations as unsigned bytes."""
_SIGN_BIT = torch.tensor(-128, dtype=torch.int8)
_SMALLEST_SCALE = torch.tensor(1e-30)
"""So that a row of zeros has a scale."""
SPREAD_BLOCK = 32
"""Measured: 16 to 512 lose about the same, and the cost grows with the block."""


@dataclass(frozen=True, slots=True)
class Codes:
    """Rows as integers: row = scale * code, rounded to the nearest."""

    values: Tensor
    """int8 [rows, columns], within +-127"""
    scales: Tensor
    """float32 [rows, 1]"""

    @classmethod
    def of(cls, rows: Tensor) -> Codes:
        """Round float32 rows [rows, columns]; the largest magnitude of each row becomes 127."""
        scales = torch.add(_SMALLEST_SCALE, rows.abs().amax(-1, keepdim=True), alpha=1.0 / LARGEST_CODE)
        scaled = (rows * scales.reciprocal()).round_()
        return cls(torch.empty_like(scaled, dtype=torch.int8).copy_(scaled), scales)

    def unsigned_(self) -> Tensor:
        """Return code + 128 as uint8, in the memory of ``values``, which are lost by it."""
        return self.values.bitwise_xor_(_SIGN_BIT).view(torch.uint8)


@dataclass(frozen=True, slots=True)
class Int8Linear:
    """The projection with its weight as int8 in oneDNN's blocked layout; float32 in and out."""

    packed: Tensor
    output_scales: Tensor
    """float32 [outputs]"""
    zero_points: Tensor
    """int32 zeros [outputs]"""
    bias: Tensor | None = None
    spread: Tensor | None = None
    """Hadamard matrix that mixes blocks of an input's channels first; the weight has taken in its inverse."""

    def __call__(self, x: Tensor) -> Tensor:
        if self.spread is not None:
            x = torch.mm(x.view(-1, len(self.spread)), self.spread).view(x.shape)
        codes = Codes.of(x)
        arguments = (codes.unsigned_(), 1.0, ZERO_POINT, self.packed, self.output_scales, self.zero_points)
        y = _product()(*arguments, None, 1.0, 0, torch.float32, "none", [], "").mul_(codes.scales)
        return y if self.bias is None else y.add_(self.bias)

    @property
    def memory(self) -> MemoryRange:
        """Where the blocked weight lies."""
        return memory_of(self.packed)


def int8_linear(weight: Tensor, bias: Tensor | None) -> Linear:
    """Round and prepack a float32 CPU weight [outputs, inputs]."""
    return _packed(weight, bias, spread=None)


def spread_int8_linear(weight: Tensor, bias: Tensor | None) -> Linear:
    """The same for inputs of which a few are far larger than the rest, as those behind a gate are.

    They are no sum of a stream that could be turned beforehand, so each row is mixed as it comes, in blocks.
    """
    mixed, block = spread_weight(weight)
    return _packed(mixed, bias, hadamard(block))


def spread_weight(weight: Tensor) -> tuple[Tensor, int]:
    """Return the weight for inputs that Hadamard's matrix mixes block by block, and the block's size."""
    block = largest_power_of_two(weight.shape[1], SPREAD_BLOCK)
    return (weight.view(len(weight), -1, block) @ hadamard(block) / block).flatten(1), block


def _packed(weight: Tensor, bias: Tensor | None, spread: Tensor | None) -> Int8Linear:
    codes = Codes.of(weight)
    shape = [PACKED_FOR_ROWS, weight.shape[1]]
    return Int8Linear(
        torch.ops.onednn.qlinear_prepack(codes.values, shape),
        codes.scales.flatten(),
        torch.zeros(len(weight), dtype=torch.int32),
        bias,
        spread,
    )


@cache
def _product() -> Callable[..., Tensor]:
    """oneDNN's, found once: the way through ``torch.ops`` costs microseconds a call."""
    product: Callable[..., Tensor] = torch.ops.onednn.qlinear_pointwise.default
    return product
