"""Projections as the device multiplies them: plain, or prepacked where oneDNN can."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Literal, Protocol, TypeAlias, runtime_checkable

import torch
import torch.nn.functional as F
from torch import Tensor

from worker.engine.huge_pages import MemoryRange

KernelsName: TypeAlias = Literal["native", "onednn", "torch"]
"""Whose products and attention a model is computed with: our own in C, oneDNN's, PyTorch's."""


class Linear(Protocol):
    """A projection [tokens, inputs] -> [tokens, outputs]."""

    def __call__(self, x: Tensor) -> Tensor: ...


@runtime_checkable
class Packed(Protocol):
    """A projection whose weight lies in one piece."""

    @property
    def memory(self) -> MemoryRange: ...


LinearFactory: TypeAlias = Callable[[Tensor, Tensor | None], Linear]
"""(weight [outputs, inputs], bias [outputs]) -> projection."""


@dataclass(frozen=True, slots=True)
class PlainLinear:
    """The projection as torch has it: any device, any dtype."""

    weight: Tensor
    bias: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)


@dataclass(frozen=True, slots=True)
class PackedLinear:
    """The projection with its weight in oneDNN's blocked layout, reordered once."""

    packed: Tensor
    bias: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        y: Tensor = _product()(x, self.packed, self.bias, "none", [], "")
        return y

    @property
    def memory(self) -> MemoryRange:
        """Where the blocked weight lies."""
        return memory_of(self.packed)


PACKED_FOR_ROWS = 32
"""oneDNN picks the blocked layout for this many rows; measured as good as the exact count from 1 to 256."""


def packed_linear(weight: Tensor, bias: Tensor | None) -> Linear:
    """Prepack a CPU weight [outputs, inputs], bfloat16 or float32."""
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), PACKED_FOR_ROWS)
    return PackedLinear(packed, bias)


def memory_of(packed: Tensor) -> MemoryRange:
    """Return where a tensor in oneDNN's layout lies."""
    address: int = torch.ops.mkldnn.data_ptr(packed)
    num_bytes: int = torch.ops.mkldnn._nbytes(packed)
    return MemoryRange(address, num_bytes)


@cache
def _product() -> Callable[..., Tensor]:
    """oneDNN's, found once: the way through ``torch.ops`` costs microseconds a call."""
    product: Callable[..., Tensor] = torch.ops.mkldnn._linear_pointwise.default
    return product
