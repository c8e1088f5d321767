"""The least that a step can cost here: its matrix products alone, by the kernels that we use."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass

import torch
from torch import Tensor

from worker.engine.architecture import Architecture
from worker.engine.linear import Linear, LinearFactory, PlainLinear, packed_linear
from worker.engine.native.kernels import native_kernels
from worker.engine.native.linear import native_linear

_ROUNDS = 5


@dataclass(frozen=True, slots=True)
class Products:
    """Weights in the shapes of a model, each layer in memory of its own as in a real step."""

    layers: tuple[tuple[Linear, int], ...]
    """Every projection of every layer, with the width of its input."""
    head: Linear
    hidden_size: int
    dtype: torch.dtype

    @classmethod
    def of(cls, architecture: Architecture, dtype: torch.dtype, make_linear: LinearFactory) -> Products:
        """Make them for inputs of ``dtype``."""
        a = architecture
        attention_width = a.num_heads * a.head_dim
        shapes = (
            (a.num_fused_heads * a.head_dim, a.hidden_size),
            (a.hidden_size, attention_width),
            (2 * a.intermediate_size, a.hidden_size),
            (a.hidden_size, a.intermediate_size),
        )
        layers = tuple(
            (_linear(outputs, inputs, dtype, make_linear), inputs)
            for _ in range(a.num_layers)
            for outputs, inputs in shapes
        )
        return cls(layers, _linear(a.vocab_size, a.hidden_size, dtype, make_linear), a.hidden_size, dtype)

    def spent_s(self, num_rows: int, num_logits: int) -> float:
        """Return the CPU seconds of the products for ``num_rows`` tokens; ``num_logits`` get logits."""
        inputs = {width: self._input(num_rows, width) for _, width in self.layers}
        sampled = self._input(num_logits, self.hidden_size)
        start = time.process_time()
        for linear, width in self.layers:
            linear(inputs[width])
        if num_logits:
            self.head(sampled)
        return time.process_time() - start

    def _input(self, num_rows: int, width: int) -> Tensor:
        return torch.randn(num_rows, width).to(self.dtype)


class Floor:
    """Products in every way that our engine could compute a model of ``dtype``; the fastest one counts."""

    def __init__(self, architecture: Architecture, dtype: torch.dtype) -> None:
        has_onednn = bool(torch.backends.mkldnn.is_available())  # type: ignore[no-untyped-call]
        libraries = packed_linear if has_onednn else PlainLinear
        ways: list[tuple[torch.dtype, LinearFactory]] = [
            (each, libraries) for each in sorted({dtype, torch.float32}, key=str)
        ]
        if dtype == torch.bfloat16 and native_kernels() is not None:
            ways.append((torch.float32, native_linear))
        self._products = [Products.of(architecture, *way) for way in ways]

    @torch.inference_mode()
    def step_s(self, num_rows: int, num_logits: int) -> float:
        """Return the median CPU seconds of one step's products."""
        return min(
            statistics.median(products.spent_s(num_rows, num_logits) for _ in range(_ROUNDS))
            for products in self._products
        )

    def prefill_s(self, num_tokens: int, chunk: int) -> float:
        """Return the CPU seconds of the products of a prompt that is read in chunks."""
        whole, rest = divmod(num_tokens, chunk)
        sizes = [chunk] * whole + [rest] * (rest > 0)
        return sum(self.step_s(size, int(i == len(sizes) - 1)) for i, size in enumerate(sizes))


def _linear(outputs: int, inputs: int, dtype: torch.dtype, make_linear: LinearFactory) -> Linear:
    return make_linear(torch.full((outputs, inputs), 0.01, dtype=dtype), None)
