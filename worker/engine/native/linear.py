"""Projections whose weights are bf16 in memory, multiplied in float32: ``project.c`` says how."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from torch import Tensor

from worker.engine.huge_pages import MemoryRange
from worker.engine.linear import Linear
from worker.engine.native.kernels import as_rows, kernels_at_hand
from worker.engine.weights import FoldedNorm, Norm, NormedLinear, NormedProjection

PANEL = 32
"""Outputs of a panel."""
NO_NORM = -1.0


@dataclass(frozen=True, slots=True)
class NativeLinear:
    """float32 in and out. Contiguous rows are read where they lie."""

    panels: Tensor
    """bf16 [outputs / 32, inputs / 2, 32, 2], the last panel filled up with zeros"""
    num_outputs: int
    bias: Tensor | None = None
    """float32 [outputs]"""

    def __call__(self, x: Tensor) -> Tensor:
        return self.project(x, NO_NORM)

    def project(self, x: Tensor, eps_length: float) -> Tensor:
        """Project float32 [rows, inputs], a row divided by sqrt(|x|² + eps_length²) if eps_length >= 0."""
        rows = as_rows(x, 2 * self.panels.shape[1])
        y = torch.empty(len(rows), self.num_outputs)
        kernels_at_hand().project(
            rows.data_ptr(),
            len(rows),
            rows.shape[1],
            self.panels.data_ptr(),
            None if self.bias is None else self.bias.data_ptr(),
            self.num_outputs,
            eps_length,
            torch.get_num_threads(),
            y.data_ptr(),
        )
        return y

    @property
    def memory(self) -> MemoryRange:
        """Where the panels lie."""
        return MemoryRange(self.panels.data_ptr(), self.panels.nbytes)


@runtime_checkable
class ProjectsNormed(Protocol):
    """A projection that can norm its rows, too."""

    def __call__(self, x: Tensor) -> Tensor: ...

    def project(self, x: Tensor, eps_length: float) -> Tensor:
        """Project rows, each divided by sqrt(|x|² + eps_length²) if eps_length >= 0."""
        ...


@dataclass(frozen=True, slots=True)
class NativeNormedLinear:
    """A folded norm and the projection behind it, as one call, which divides rows at its end."""

    linear: ProjectsNormed
    eps_length: float

    def __call__(self, residual: Tensor, normed: Tensor) -> Tensor:
        """Project the residual; ``normed`` is not needed."""
        return self.linear.project(residual, self.eps_length)


def check_bias(bias: Tensor | None, num_outputs: int) -> None:
    """Raise ValueError where it is for another number of outputs."""
    if bias is not None and bias.shape != (num_outputs,):
        raise ValueError(f"a bias of {list(bias.shape)} for {num_outputs} outputs")


def native_linear(weight: Tensor, bias: Tensor | None) -> Linear:
    """Lay out a CPU weight [outputs, inputs] in panels; it is rounded to bf16 if it is not already.

    Raises ValueError where the number of inputs is odd or the bias does not fit.
    """
    num_outputs, num_inputs = weight.shape
    if num_inputs % 2:
        raise ValueError(f"native kernels take inputs in pairs, and there are {num_inputs}")
    check_bias(bias, num_outputs)
    filled = F.pad(weight.to(torch.bfloat16), (0, 0, 0, -num_outputs % PANEL))
    panels = filled.view(-1, PANEL, num_inputs // 2, 2).transpose(1, 2).contiguous()
    return NativeLinear(panels, num_outputs, None if bias is None else bias.float().contiguous())


def native_normed(norm: Norm, linear: Linear) -> NormedProjection:
    """Join a folded norm and a native projection; others stay two."""
    if isinstance(norm, FoldedNorm) and isinstance(linear, ProjectsNormed):
        return NativeNormedLinear(linear, float(norm.eps_length))
    return NormedLinear(norm, linear)


def native_gated(gate_up: Tensor) -> Tensor:
    """Return silu(gate) * up of float32 [tokens, 2 * inner], gates before ups."""
    inner = gate_up.shape[1] // 2
    rows = as_rows(gate_up, 2 * inner)
    gated = torch.empty(len(rows), inner)
    kernels_at_hand().gate(rows.data_ptr(), len(rows), inner, gated.data_ptr())
    return gated
