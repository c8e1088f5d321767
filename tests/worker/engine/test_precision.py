"""bf16: our kernels, prepacked and plain ones, folded norms and the float32 copy compute the same model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from transformers import AutoConfig, LlamaConfig

from worker.engine.architecture import Architecture
from worker.engine.batch import Piece
from worker.engine.checkpoint import Checkpoint
from worker.engine.kv import KVBlocks, KVStore
from worker.engine.linear import PlainLinear, packed_linear
from worker.engine.model import Decoder, Embeddings, Memory, Precision
from worker.engine.native.attention import NativeAttention
from worker.engine.native.kernels import native_kernels
from worker.engine.native.linear import native_linear
from worker.engine.precision import MAX_WIDE_BYTES, Processor, choose_dtype, choose_placements
from worker.engine.prefix import BLOCK_TOKENS
from worker.engine.rotary import Rotary
from worker.engine.weights import (
    EMBEDDING,
    FoldedNorm,
    Placement,
    RMSNorm,
    load_weights,
)

if TYPE_CHECKING:
    from tests.worker.engine.conftest import SaveModel

CPU = torch.device("cpu")
BF16, FP32 = torch.bfloat16, torch.float32
needs_native = pytest.mark.skipif(native_kernels() is None, reason="no native kernels here")
AVX512 = Processor(CPU, has_bf16=True, has_bf16_tiles=False, can_prepack=True)
PLAIN = Placement(BF16, BF16, CPU, PlainLinear, folds_norms=False)
IDS = tuple(torch.randint(0, 300, (24,), generator=torch.Generator().manual_seed(5)).tolist())


@pytest.fixture(scope="module")
def folder(save_model: SaveModel) -> Path:
    config = LlamaConfig(
        vocab_size=300,
        hidden_size=192,
        intermediate_size=160,
        num_hidden_layers=3,
        num_attention_heads=6,
        num_key_value_heads=2,
        attention_bias=True,
        initializer_range=0.1,
    )
    return save_model(config)[0]


def build(folder: Path, narrow: Placement, wide: Placement | None = None) -> Decoder:
    architecture = Architecture.from_config(AutoConfig.from_pretrained(str(folder)))

    def precision(placement: Placement) -> Precision:
        with Checkpoint(folder) as checkpoint:
            weights = load_weights(checkpoint, architecture, placement)
        return Precision(weights, Rotary.table(architecture, 64, placement.dtype, CPU))

    store = KVStore(architecture, 20, 64, narrow.rounded_to, CPU)
    with Checkpoint(folder) as checkpoint:
        embedding = narrow.place(checkpoint.read(EMBEDDING))
    return Decoder(
        architecture,
        Memory(store, KVBlocks(store, 0, BLOCK_TOKENS)),
        Embeddings(embedding, embedding),
        precision(narrow),
        precision(wide) if wide else None,
        attention=NativeAttention(architecture, store) if narrow.kernels == "native" else None,
    )


def decoded_alone(model: Decoder) -> torch.Tensor:
    """Logits after every token, a token a pass: the narrow weights throughout."""
    rows = [model.forward([Piece(0, at, (token,), 1)]) for at, token in enumerate(IDS)]
    return torch.cat(rows).float()


def decoded_in_a_crowd(model: Decoder) -> torch.Tensor:
    """The same in twenty slots at once: the wide weights, where there are any."""
    rows = [
        model.forward([Piece(slot, at, (token,), 1) for slot in range(20)])[7:8]
        for at, token in enumerate(IDS)
    ]
    return torch.cat(rows).float()


def relative_error(logits: torch.Tensor, expected: torch.Tensor) -> float:
    return float((logits - expected).norm() / expected.norm())


def test_all_ways_to_compute_bf16_agree(folder: Path) -> None:
    exact = decoded_alone(build(folder, Placement(FP32, FP32, CPU, PlainLinear, folds_norms=False)))
    packed = replace(PLAIN, make_linear=packed_linear, folds_norms=True)
    wide = replace(packed, dtype=FP32)
    native = {}
    if native_kernels() is not None:
        model = build(folder, native_placement(folder))
        native["native"] = relative_error(decoded_alone(model), exact)
        native["native in a crowd"] = relative_error(decoded_in_a_crowd(model), exact)

    errors = native | {
        "plain": relative_error(decoded_alone(build(folder, PLAIN)), exact),
        "prepacked": relative_error(decoded_alone(build(folder, packed)), exact),
        "prepacked in a crowd": relative_error(decoded_in_a_crowd(build(folder, packed)), exact),
        "wide in a crowd": relative_error(decoded_in_a_crowd(build(folder, packed, wide)), exact),
    }

    assert all(0.0 < error < 0.02 for error in errors.values()), errors
    assert errors["wide in a crowd"] < errors["prepacked in a crowd"]


def native_placement(folder: Path) -> Placement:
    architecture = Architecture.from_config(AutoConfig.from_pretrained(str(folder)))
    narrow, wide = choose_placements(BF16, replace(AVX512, has_native_kernels=True), architecture)
    assert wide is None
    assert narrow.make_linear is native_linear
    return narrow


@needs_native
def test_with_native_kernels_logits_are_the_same_alone_in_a_crowd_and_in_chunks(folder: Path) -> None:
    model = build(folder, native_placement(folder))
    alone = decoded_alone(model)
    assert torch.equal(decoded_in_a_crowd(model), alone)
    chunks = [
        model.forward([Piece(4, at, IDS[at : at + size], size), Piece(9, 0, IDS[:size], 0)])
        for at, size in ((0, 7), (7, 1), (8, 13), (21, 3))
    ]
    assert torch.equal(torch.cat(chunks), alone)


@pytest.mark.parametrize("dtype", [BF16, FP32])
@pytest.mark.parametrize("num_rows", [1, 8, 33])
@pytest.mark.parametrize("has_bias", [False, True])
def test_a_prepacked_projection_equals_the_plain_one(
    dtype: torch.dtype, num_rows: int, has_bias: bool
) -> None:
    generator = torch.Generator().manual_seed(num_rows)
    weight = torch.randn(80, 48, generator=generator).to(dtype)
    bias = torch.randn(80, generator=generator).to(dtype) if has_bias else None
    x = torch.randn(num_rows, 48, generator=generator).to(dtype)
    tolerance = 0.02 if dtype == BF16 else 1e-5
    torch.testing.assert_close(
        packed_linear(weight, bias)(x), PlainLinear(weight, bias)(x), rtol=tolerance, atol=tolerance * 4
    )


def test_where_nothing_can_be_prepacked_the_plain_kernels_serve(folder: Path) -> None:
    architecture = Architecture.from_config(AutoConfig.from_pretrained(str(folder)))
    narrow, wide = choose_placements(BF16, replace(AVX512, can_prepack=False), architecture)
    assert narrow.make_linear is PlainLinear
    assert wide is not None
    assert wide.make_linear is PlainLinear
    assert torch.isfinite(decoded_in_a_crowd(build(folder, narrow, wide))).all()


def test_a_folded_norm_is_the_norm_also_where_eps_matters() -> None:
    weight = torch.tensor([0.5, -1.0, 2.0, 1.0])
    projection = torch.arange(8.0).view(2, 4)
    residual = torch.tensor([[1.0, 2.0, -3.0, 0.5], [1e-3, -2e-3, 0.0, 1e-3], [0.0, 0.0, 0.0, 0.0]])
    normed = RMSNorm(weight, 1e-5)(residual, torch.empty(3, 4))
    folded = FoldedNorm.of(4, 1e-5)(residual, torch.empty(3, 4))
    torch.testing.assert_close(folded @ FoldedNorm.fold(weight, projection).T, normed @ projection.T)
    torch.testing.assert_close(normed, torch.nn.functional.rms_norm(residual, (4,), weight, 1e-5))


def test_auto_is_bf16_where_the_processor_multiplies_it() -> None:
    without = replace(AVX512, has_bf16=False)
    assert choose_dtype("auto", AVX512) == BF16
    assert choose_dtype("auto", without) == FP32
    assert choose_dtype("auto", replace(without, has_native_kernels=True)) == BF16
    assert choose_dtype("fp32", AVX512) == FP32
    assert choose_dtype("bf16", without) == BF16


def test_a_float32_copy_is_kept_only_where_it_pays_and_fits(folder: Path) -> None:
    small = Architecture.from_config(AutoConfig.from_pretrained(str(folder)))
    large = replace(small, vocab_size=MAX_WIDE_BYTES // (4 * small.hidden_size) + 1)

    assert choose_placements(BF16, AVX512, small)[1] is not None
    assert choose_placements(BF16, AVX512, large)[1] is None
    assert choose_placements(BF16, replace(AVX512, has_bf16_tiles=True), small)[1] is None
    assert choose_placements(FP32, AVX512, small)[1] is None


def test_float32_keeps_to_the_arithmetic_of_transformers(folder: Path) -> None:
    architecture = Architecture.from_config(AutoConfig.from_pretrained(str(folder)))
    narrow, _ = choose_placements(FP32, Processor.best(), architecture)
    assert narrow.make_linear is PlainLinear
    assert not narrow.folds_norms
