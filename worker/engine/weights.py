"""Weights laid out for decoding: projections fused, norms folded in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from worker.engine.architecture import Architecture
from worker.engine.checkpoint import Checkpoint
from worker.engine.linear import KernelsName, Linear, LinearFactory
from worker.engine.rotation import Rotation


@dataclass(frozen=True, slots=True)
class RMSNorm:
    """The norm as transformers computes it."""

    weight: Tensor
    eps: float

    def __call__(self, residual: Tensor, out: Tensor) -> Tensor:
        return out.copy_(F.rms_norm(residual, self.weight.shape, self.weight, self.eps))


@dataclass(frozen=True, slots=True)
class FoldedNorm:
    """The norm without its weight, which the projection behind it has taken in: three kernels instead of ten.

    x / sqrt(|x|^2 + n * eps) is the norm divided by sqrt(n); ``fold`` gives the projection that factor too.
    """

    eps_length: Tensor
    """sqrt(n * eps), float32 scalar"""

    @classmethod
    def of(cls, size: int, eps: float) -> FoldedNorm:
        return cls(torch.tensor((size * eps) ** 0.5))

    @staticmethod
    def fold(norm_weight: Tensor, linear_weight: Tensor) -> Tensor:
        """Return [outputs, inputs] in float32 with the norm's weight and scale multiplied in."""
        scale: float = norm_weight.shape[0] ** 0.5
        return linear_weight.float() * (norm_weight.float() * scale)

    def __call__(self, residual: Tensor, out: Tensor) -> Tensor:
        length = torch.linalg.vector_norm(residual, dim=-1, keepdim=True).hypot_(self.eps_length)
        return torch.div(residual, length, out=out)


Norm: TypeAlias = RMSNorm | FoldedNorm
"""(float32 residual [tokens, hidden], out of the same shape in the weights' dtype) -> out."""


class NormedProjection(Protocol):
    """A norm and the projection that reads it."""

    @property
    def linear(self) -> Linear: ...

    def __call__(self, residual: Tensor, normed: Tensor) -> Tensor:
        """Project float32 [tokens, hidden]; ``normed`` is scratch memory, allocated once for all layers."""
        ...


@dataclass(frozen=True, slots=True)
class NormedLinear:
    """Both, one after the other."""

    norm: Norm
    linear: Linear

    def __call__(self, residual: Tensor, normed: Tensor) -> Tensor:
        return self.linear(self.norm(residual, normed))


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One decoder layer. ``query_norm`` and ``key_norm`` [head_dim] are Qwen3's."""

    fused_qkv: NormedProjection
    query_norm: Tensor | None
    key_norm: Tensor | None
    attention_output: Linear
    gate_up: NormedProjection
    down: Linear


@dataclass(frozen=True, slots=True)
class DecoderWeights:
    """All weights of a decoder in one dtype on one device, but for the embedding."""

    layers: tuple[LayerWeights, ...]
    head: NormedProjection
    dtype: torch.dtype
    gated: Callable[[Tensor], Tensor]
    """What stands between ``gate_up`` and ``down``"""

    def projections(self) -> Iterator[Linear]:
        """Yield all that a step multiplies by."""
        for layer in self.layers:
            yield from (layer.fused_qkv.linear, layer.attention_output, layer.gate_up.linear, layer.down)
        yield self.head.linear


def gated(gate_up: Tensor) -> Tensor:
    """Return silu(gate) * up of [tokens, 2 * inner], gates before ups."""
    gate, up = gate_up.chunk(2, -1)
    return F.silu(gate).mul_(up)


@dataclass(frozen=True, slots=True)
class Placement:
    """Where weights live and how they are computed with."""

    rounded_to: torch.dtype
    """The values are those of this dtype, whatever the checkpoint had."""
    dtype: torch.dtype
    """What is stored and multiplied; wider than ``rounded_to`` where the CPU multiplies that faster."""
    device: torch.device
    make_linear: LinearFactory
    folds_norms: bool
    """Faster in eager mode, but other roundings than transformers'."""
    rotation: Rotation | None = None
    """The basis that the residual stream is in, if not its own; wants folded norms."""
    make_down: LinearFactory | None = None
    """Another factory for the projection behind the gate, whose inputs have outliers."""

    join_norm: Callable[[Norm, Linear], NormedProjection] = NormedLinear
    """Makes a norm and its projection one."""
    gated: Callable[[Tensor], Tensor] = gated
    """[tokens, 2 * inner], gates before ups -> silu(gate) * up"""
    kernels: KernelsName = "torch"
    """Whose products these are."""

    def place(self, tensor: Tensor) -> Tensor:
        """Round, widen and move one tensor."""
        return tensor.to(self.rounded_to).to(device=self.device, dtype=self.dtype)


def load_weights(checkpoint: Checkpoint, architecture: Architecture, placement: Placement) -> DecoderWeights:
    """Read all weights of a Llama-family checkpoint."""
    reader = _Reader(checkpoint, placement, architecture.norm_eps)
    return DecoderWeights(
        layers=tuple(reader.layer(f"model.layers.{i}.") for i in range(architecture.num_layers)),
        head=reader.normed("model.norm", [head_name(checkpoint, architecture)]),
        dtype=placement.dtype,
        gated=placement.gated,
    )


EMBEDDING = "model.embed_tokens.weight"


def head_name(checkpoint: Checkpoint, architecture: Architecture) -> str:
    """Return the output embedding's name, less its ``.weight``: the input embedding where they are tied."""
    has_own_head = "lm_head.weight" in checkpoint and not architecture.has_tied_head
    return "lm_head" if has_own_head else EMBEDDING.removesuffix(".weight")


@dataclass(frozen=True, slots=True)
class _Reader:
    checkpoint: Checkpoint
    placement: Placement
    norm_eps: float

    def layer(self, prefix: str) -> LayerWeights:
        attention, mlp = prefix + "self_attn.", prefix + "mlp."
        return LayerWeights(
            fused_qkv=self.normed(
                prefix + "input_layernorm", [attention + name for name in ("q_proj", "k_proj", "v_proj")]
            ),
            query_norm=self.optional(attention + "q_norm.weight"),
            key_norm=self.optional(attention + "k_norm.weight"),
            attention_output=self.writer(attention + "o_proj", self.placement.make_linear),
            gate_up=self.normed(prefix + "post_attention_layernorm", [mlp + "gate_proj", mlp + "up_proj"]),
            down=self.writer(mlp + "down_proj", self.placement.make_down or self.placement.make_linear),
        )

    def normed(self, norm_name: str, linear_names: list[str]) -> NormedProjection:
        norm_weight = self.checkpoint.read(f"{norm_name}.weight")
        if self.placement.folds_norms:
            folded = FoldedNorm.of(norm_weight.shape[0], self.norm_eps)
            return self.placement.join_norm(folded, self.reader(linear_names, norm_weight))
        norm = RMSNorm(self.placement.place(norm_weight).float(), self.norm_eps)
        return self.placement.join_norm(norm, self.reader(linear_names))

    def reader(self, names: list[str], norm_weight: Tensor | None = None) -> Linear:
        """Stack projections that read the residual stream into one."""
        weight = torch.cat([self.checkpoint.read(f"{name}.weight") for name in names])
        if norm_weight is not None:
            weight = FoldedNorm.fold(norm_weight, weight)
        if self.placement.rotation is not None:
            weight = self.placement.rotation.rotate(weight)
        biases = [self.optional(f"{name}.bias") for name in names]
        bias = torch.cat([b for b in biases if b is not None]) if biases[0] is not None else None
        return self.placement.make_linear(self.placement.place(weight), bias)

    def writer(self, name: str, make_linear: LinearFactory) -> Linear:
        """A projection that writes the residual stream."""
        weight, bias = self.checkpoint.read(f"{name}.weight"), self.optional(f"{name}.bias")
        if self.placement.rotation is not None:
            weight = self.placement.rotation.rotate_outputs(weight)
            bias = None if bias is None else self.placement.rotation.rotate(bias)
        return make_linear(self.placement.place(weight), bias)

    def optional(self, name: str) -> Tensor | None:
        return self.placement.place(self.checkpoint.read(name)) if name in self.checkpoint else None
