"""Rotary position embedding: tables made once, rotation in place."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from worker.engine.architecture import Architecture


@dataclass(frozen=True, slots=True)
class Rotary:
    """cos and sin by position, [positions, 1, head_dim]; rotate_half's minus is in the first half of sin."""

    cos: Tensor
    signed_sin: Tensor

    @classmethod
    def table(
        cls, architecture: Architecture, num_positions: int, dtype: torch.dtype, device: torch.device
    ) -> Rotary:
        """Compute the angles in float32 and store them in ``dtype``, as transformers does."""
        angles = torch.arange(num_positions).float()[:, None] * architecture.inverse_frequencies()
        cos, sin = angles.cos(), angles.sin()
        return cls(
            torch.cat((cos, cos), -1)[:, None].to(device, dtype),
            torch.cat((-sin, sin), -1)[:, None].to(device, dtype),
        )

    def at(self, positions: Tensor) -> Rotary:
        """Return the rows of these positions, [tokens, 1, head_dim]."""
        return Rotary(self.cos[positions], self.signed_sin[positions])

    def rotate_(self, heads: Tensor) -> None:
        """Rotate [tokens, heads, head_dim] in place, a row by its own angle."""
        swapped = heads.roll(heads.shape[-1] // 2, -1)
        heads.mul_(self.cos).addcmul_(swapped, self.signed_sin)
