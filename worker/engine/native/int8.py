"""Projections in 8-bit integers by our own kernel, ``project_int8.c``; see ``worker/engine/int8.py``."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from worker.engine.huge_pages import MemoryRange
from worker.engine.int8 import SPREAD_BLOCK, ZERO_POINT, Codes, spread_weight
from worker.engine.linear import Linear
from worker.engine.native.kernels import INPUTS_AT_ONCE, as_rows, kernels_at_hand
from worker.engine.native.linear import NO_NORM, PANEL, check_bias


@dataclass(frozen=True, slots=True)
class NativeInt8Linear:
    """float32 in and out; rows are rounded as they come."""

    panels: Tensor
    """int8 [outputs / 32, inputs / 4, 32, 4], the last panel filled up with zeros"""
    output_scales: Tensor
    """float32 [outputs]"""
    offsets: Tensor
    """int32 [outputs]: 128 times the sum of an output's codes"""
    bias: Tensor | None
    is_spread: bool
    """Whether inputs are mixed in blocks first; the weight has taken in the inverse."""

    def __call__(self, x: Tensor) -> Tensor:
        return self.project(x, NO_NORM)

    def project(self, x: Tensor, eps_length: float) -> Tensor:
        """Project float32 [rows, inputs], a row divided by sqrt(|x|² + eps_length²) if eps_length >= 0."""
        kernels = kernels_at_hand()
        rows = as_rows(x, INPUTS_AT_ONCE * self.panels.shape[1])
        rows = rows.clone() if self.is_spread else rows  # it is written over
        num_rows, num_inputs = rows.shape
        codes, scales = torch.empty(rows.shape, dtype=torch.uint8), torch.empty(num_rows)
        kernels.round_rows(
            rows.data_ptr(),
            num_rows,
            num_inputs,
            self.is_spread,
            eps_length,
            codes.data_ptr(),
            scales.data_ptr(),
        )
        num_outputs = len(self.output_scales)
        y = torch.empty(num_rows, num_outputs)
        kernels.project_int8(
            codes.data_ptr(),
            scales.data_ptr(),
            num_rows,
            num_inputs,
            self.panels.data_ptr(),
            self.output_scales.data_ptr(),
            self.offsets.data_ptr(),
            None if self.bias is None else self.bias.data_ptr(),
            num_outputs,
            torch.get_num_threads(),
            y.data_ptr(),
        )
        return y

    @property
    def memory(self) -> MemoryRange:
        """Where the panels lie."""
        return MemoryRange(self.panels.data_ptr(), self.panels.nbytes)


def native_int8_linear(weight: Tensor, bias: Tensor | None) -> Linear:
    """Round a float32 CPU weight [outputs, inputs] and lay it out in panels.

    Raises ValueError where the number of inputs is no multiple of 4 or the bias does not fit.
    """
    if weight.shape[1] % INPUTS_AT_ONCE:
        raise ValueError(f"native kernels take inputs by fours, and there are {weight.shape[1]}")
    return _in_panels(weight, bias, is_spread=False)


def native_spread_int8_linear(weight: Tensor, bias: Tensor | None) -> Linear:
    """The same for inputs of which a few are far larger than the rest: they are mixed in blocks of 32.

    Raises ValueError where the number of inputs is no multiple of 32.
    """
    mixed, block = spread_weight(weight)
    if block != SPREAD_BLOCK:
        raise ValueError(f"native kernels mix blocks of 32, and there are {weight.shape[1]} inputs")
    return _in_panels(mixed, bias, is_spread=True)


def _in_panels(weight: Tensor, bias: Tensor | None, *, is_spread: bool) -> NativeInt8Linear:
    num_outputs, num_inputs = weight.shape
    check_bias(bias, num_outputs)
    codes = Codes.of(weight)
    filled = F.pad(codes.values, (0, 0, 0, -num_outputs % PANEL))
    panels = filled.view(-1, PANEL, num_inputs // INPUTS_AT_ONCE, INPUTS_AT_ONCE).transpose(1, 2).contiguous()
    return NativeInt8Linear(
        panels,
        codes.scales.flatten(),
        ZERO_POINT * codes.values.sum(1, dtype=torch.int32),
        None if bias is None else bias.float().contiguous(),
        is_spread,
    )
