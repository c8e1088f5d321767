"""Reads safetensors and lays the weights out for decoding: fused projections, prepacked where oneDNN can."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import torch
import torch.nn.functional as F
from safetensors import safe_open
from torch import Tensor

from worker.engine.architecture import Architecture


class Linear(Protocol):
    """A projection [tokens, inputs] -> [tokens, outputs]."""

    def __call__(self, x: Tensor) -> Tensor: ...

    def plus(self, x: Tensor, residual: Tensor) -> Tensor:
        """Return the projection of x added to the residual."""
        ...


@dataclass(frozen=True, slots=True)
class PlainLinear:
    """The projection as torch has it: any device, any dtype."""

    weight: Tensor
    bias: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)

    def plus(self, x: Tensor, residual: Tensor) -> Tensor:
        return residual + F.linear(x, self.weight, self.bias)


@dataclass(frozen=True, slots=True)
class PackedLinear:
    """The weight in oneDNN's blocked layout, reordered once; the residual is added inside the kernel."""

    packed: Tensor
    bias: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        y: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, "none", [], "")
        return y

    def plus(self, x: Tensor, residual: Tensor) -> Tensor:
        y: Tensor = torch.ops.mkldnn._linear_pointwise.binary(x, residual, self.packed, self.bias, "add")
        return y


LinearFactory: TypeAlias = Callable[[Tensor, Tensor | None], Linear]

_PACKED_FOR_ROWS = 32
"""oneDNN picks the blocked layout for this many rows; measured equal to the exact count from 1 to 256."""


def packed_linear(weight: Tensor, bias: Tensor | None) -> Linear:
    """Prepack a CPU weight [outputs, inputs], bfloat16 or float32."""
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), _PACKED_FOR_ROWS)
    return PackedLinear(packed, bias)


def can_prepack(dtype: torch.dtype) -> bool:
    """Return whether oneDNN's prepacked kernels serve this dtype on this CPU."""
    if not torch.backends.mkldnn.is_available():
        return False
    return dtype == torch.float32 or bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One decoder layer. ``query_norm`` and ``key_norm`` are Qwen3's."""

    attention_norm: Tensor
    fused_qkv: Linear
    query_norm: Tensor | None
    key_norm: Tensor | None
    attention_output: Linear
    mlp_norm: Tensor
    gate_up: Linear
    down: Linear


@dataclass(frozen=True, slots=True)
class DecoderWeights:
    """All weights of a decoder in one dtype on one device."""

    embedding: Tensor
    """[vocab, hidden]"""
    layers: tuple[LayerWeights, ...]
    norm: Tensor
    head: Linear
    dtype: torch.dtype


class Checkpoint:
    """Tensors of a folder of safetensors, sharded or not, read one at a time."""

    def __init__(self, folder: Path) -> None:
        self._open_files = ExitStack()
        self._shard_of: dict[str, Any] = {}
        for path in _shards(folder):
            shard = self._open_files.enter_context(safe_open(str(path), framework="pt"))
            self._shard_of.update(dict.fromkeys(shard.keys(), shard))

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(self, *_: object) -> None:
        self._open_files.close()

    def __contains__(self, name: str) -> bool:
        return name in self._shard_of

    def read(self, name: str) -> Tensor:
        """Return one tensor in the dtype it was saved in. Raises KeyError where the checkpoint lacks it."""
        tensor: Tensor = self._shard_of[name].get_tensor(name)
        return tensor


def _shards(folder: Path) -> list[Path]:
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        weight_map: dict[str, str] = json.loads(index.read_text())["weight_map"]
        return [folder / name for name in sorted(set(weight_map.values()))]
    return [folder / "model.safetensors"]


@dataclass(frozen=True, slots=True)
class Placement:
    """Where weights live and in which precision they are computed with."""

    rounded_to: torch.dtype
    """The values are those of this dtype, whatever the checkpoint had."""
    dtype: torch.dtype
    """What is stored and multiplied; wider than ``rounded_to`` where the CPU multiplies that faster."""
    device: torch.device
    make_linear: LinearFactory

    def place(self, tensor: Tensor) -> Tensor:
        """Round, widen and move one tensor."""
        return tensor.to(self.rounded_to).to(device=self.device, dtype=self.dtype)


def load_weights(checkpoint: Checkpoint, architecture: Architecture, placement: Placement) -> DecoderWeights:
    """Read all weights of a Llama-family checkpoint."""
    reader = _Reader(checkpoint, placement)
    embedding = reader.tensor("model.embed_tokens.weight")
    has_own_head = "lm_head.weight" in checkpoint and not architecture.has_tied_head
    return DecoderWeights(
        embedding=embedding,
        layers=tuple(reader.layer(f"model.layers.{i}.") for i in range(architecture.num_layers)),
        norm=reader.tensor("model.norm.weight"),
        head=reader.linear("lm_head") if has_own_head else placement.make_linear(embedding, None),
        dtype=placement.dtype,
    )


@dataclass(frozen=True, slots=True)
class _Reader:
    checkpoint: Checkpoint
    placement: Placement

    def layer(self, prefix: str) -> LayerWeights:
        attention, mlp = prefix + "self_attn.", prefix + "mlp."
        return LayerWeights(
            attention_norm=self.tensor(prefix + "input_layernorm.weight"),
            fused_qkv=self.linear(*(attention + name for name in ("q_proj", "k_proj", "v_proj"))),
            query_norm=self.optional(attention + "q_norm.weight"),
            key_norm=self.optional(attention + "k_norm.weight"),
            attention_output=self.linear(attention + "o_proj"),
            mlp_norm=self.tensor(prefix + "post_attention_layernorm.weight"),
            gate_up=self.linear(mlp + "gate_proj", mlp + "up_proj"),
            down=self.linear(mlp + "down_proj"),
        )

    def tensor(self, name: str) -> Tensor:
        return self.placement.place(self.checkpoint.read(name))

    def optional(self, name: str) -> Tensor | None:
        return self.tensor(name) if name in self.checkpoint else None

    def linear(self, *names: str) -> Linear:
        """Stack projections of one input into one."""
        weight = torch.cat([self.tensor(f"{name}.weight") for name in names])
        biases = [self.optional(f"{name}.bias") for name in names]
        bias = torch.cat([b for b in biases if b is not None]) if biases[0] is not None else None
        return self.placement.make_linear(weight, bias)
