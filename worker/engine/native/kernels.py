"""The compiled kernels as Python functions. They take addresses: what lies there is the caller's to keep."""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Callable
from ctypes import c_float, c_int, c_ssize_t, c_void_p
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any

import torch  # its OpenMP is loaded first, and is then ours too: one pool of threads
from torch import Tensor

from worker.engine.architecture import Architecture
from worker.engine.int8 import SPREAD_BLOCK

log = logging.getLogger(__name__)

MODULE = "worker.engine.native._kernels"
_MAX_HEAD_DIM = 128
_MAX_HEADS_PER_KEY_HEAD = 96
_DIMS_AT_ONCE = 32
INPUTS_AT_ONCE = 4
"""Of int8 weights; bf16 ones take two."""
_MAX_INPUTS = 65_536
"""Sums of so many products of bytes are within 32 bits."""


@dataclass(frozen=True, slots=True)
class Kernels:
    """They release the interpreter's lock while they compute."""

    project: Callable[..., None]
    """ng_project of ``project.c``"""
    attend: Callable[..., None]
    """ng_attend of ``attend.c``"""
    rotate_and_store: Callable[..., None]
    """ng_rotate_and_store of ``elementwise.c``"""
    gate: Callable[..., None]
    """ng_gate of ``elementwise.c``"""
    round_rows: Callable[..., None]
    """ng_round_rows of ``project_int8.c``"""
    project_int8: Callable[..., None]
    """ng_project_int8 of ``project_int8.c``"""
    has_int8: bool
    """Whether ``project_int8`` may be called: it needs AVX-512 VNNI too."""


@cache
def native_kernels() -> Kernels | None:
    """Return the kernels; None where they were not compiled, or where this processor lacks AVX-512."""
    spec = find_spec(MODULE)
    if spec is None or spec.origin is None:
        return None
    try:
        library = ctypes.CDLL(spec.origin)
    except OSError as error:  # compiled for another machine
        log.warning("the native kernels cannot be loaded: %s", error)
        return None
    if not library.ng_is_supported():
        return None
    address, size = c_void_p, c_ssize_t
    return Kernels(
        project=_declared(
            library.ng_project,
            (address, c_int, size, address, address, size, c_float, c_int, address),
        ),
        attend=_declared(
            library.ng_attend,
            (address, size, c_int, c_int, c_int, address, address, c_int, c_float, c_int, address),
        ),
        rotate_and_store=_declared(
            library.ng_rotate_and_store,
            (address, c_int, c_int, c_int, c_int, address, address, address, address, address),
        ),
        gate=_declared(library.ng_gate, (address, c_int, size, address)),
        round_rows=_declared(library.ng_round_rows, (address, c_int, size, c_int, c_float, address, address)),
        project_int8=_declared(
            library.ng_project_int8,
            (address, address, c_int, size, address, address, address, address, size, c_int, address),
        ),
        has_int8=bool(library.ng_has_int8()),
    )


def kernels_at_hand() -> Kernels:
    """Return the kernels to whoever was made for them: they are there."""
    kernels = native_kernels()
    assert kernels is not None, "nothing is made for kernels that are not there"
    return kernels


def fit(architecture: Architecture) -> bool:
    """Say whether all products and the attention of such a model have the sizes that the kernels take."""
    shape = architecture
    attention_width = shape.num_heads * shape.head_dim
    return (
        shape.num_heads % shape.num_kv_heads == 0
        and shape.head_dim % _DIMS_AT_ONCE == 0
        and shape.head_dim <= _MAX_HEAD_DIM
        and shape.num_heads <= _MAX_HEADS_PER_KEY_HEAD * shape.num_kv_heads
        and shape.hidden_size % INPUTS_AT_ONCE == 0
        and shape.intermediate_size % SPREAD_BLOCK == 0
        and max(shape.hidden_size, shape.intermediate_size, attention_width) <= _MAX_INPUTS
    )


def as_rows(x: Tensor, num_inputs: int) -> Tensor:
    """Return ``x`` [rows, num_inputs] as kernels read it. Raises ValueError where it is anything else.

    Kernels believe what they are told, and weights come from files: a shape that does not fit must not become
    a read beyond memory.
    """
    if x.dtype != torch.float32 or x.dim() != 2 or x.shape[1] != num_inputs:
        found = f"{list(x.shape)} of {str(x.dtype).removeprefix('torch.')}"
        raise ValueError(
            f"the model's weights do not fit each other: {found} where [rows, {num_inputs}] is read"
        )
    return x.contiguous()


def _declared(function: Any, argument_types: tuple[Any, ...]) -> Callable[..., None]:
    function.argtypes, function.restype = argument_types, None
    declared: Callable[..., None] = function
    return declared
