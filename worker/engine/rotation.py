"""An orthogonal change of the residual stream's basis, so that no channel of it stands out.

A few channels of a trained residual stream are tens of times larger than the rest, and eight bits that must
reach them leave nothing for the others. In a basis that mixes all channels they are alike. What reads the
stream and what writes it are turned by one matrix when the weights are loaded, so a step computes the same
and pays nothing (QuaRot, Ashkboos et al. 2024, arXiv:2404.00456). It wants norms without weights of their
own, which commute with it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

_MAX_BLOCK = 64
_SIGNS_SEED = 0


@dataclass(frozen=True, slots=True)
class Rotation:
    """x -> x Q, where Q is random signs and then a cosine transform (x) a Hadamard matrix.

    A product of two small matrices and not one large one: a model of 4,096 channels is turned in seconds.
    """

    signs: Tensor
    """+1 or -1 [size]: without them a constant vector would become a single large channel."""
    cosine: Tensor
    """[m, m]"""
    hadamard: Tensor
    """[k, k], where m * k = size"""

    @classmethod
    def of(cls, size: int) -> Rotation:
        """Return the rotation of ``size`` channels, always the same one."""
        block = largest_power_of_two(size, _MAX_BLOCK)
        generator = torch.Generator().manual_seed(_SIGNS_SEED)
        signs = torch.randint(0, 2, (size,), generator=generator).float() * 2.0 - 1.0
        return cls(signs, _cosine(size // block), hadamard(block) / math.sqrt(block))

    def rotate(self, rows: Tensor) -> Tensor:
        """Turn vectors [..., size] of the stream, or a weight [outputs, size] that reads it. float32."""
        shape = (*rows.shape[:-1], len(self.cosine), len(self.hadamard))
        turned: Tensor = self.cosine.T @ ((rows.float() * self.signs).view(shape) @ self.hadamard)
        return turned.flatten(-2)

    def rotate_outputs(self, weight: Tensor) -> Tensor:
        """Turn a weight [size, inputs] that writes the stream. float32."""
        return self.rotate(weight.T).T.contiguous()


def hadamard(size: int) -> Tensor:
    """Return Sylvester's matrix of +1 and -1, [size, size], size a power of two. Its square is size * I."""
    matrix = torch.ones(1, 1)
    while len(matrix) < size:
        matrix = torch.kron(torch.tensor([[1.0, 1.0], [1.0, -1.0]]), matrix)
    return matrix


def largest_power_of_two(size: int, at_most: int) -> int:
    """Return the largest power of two that divides ``size`` and is not above ``at_most``, itself one."""
    return math.gcd(size, at_most)


def _cosine(size: int) -> Tensor:
    """Return the orthonormal cosine transform (DCT-II), transposed: a column for each frequency."""
    places = torch.arange(size, dtype=torch.float64)
    matrix = torch.cos(math.pi / size * (places[:, None] + 0.5) * places) * math.sqrt(2.0 / size)
    matrix[:, 0] /= math.sqrt(2.0)
    return matrix.float()
