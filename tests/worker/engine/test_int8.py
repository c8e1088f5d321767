"""int8 weights: the integers against numpy, a small random model, and what the real one loses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers import GPT2Config, Qwen2Config

from worker.engine.architecture import Architecture
from worker.engine.batch import Piece
from worker.engine.int8 import Codes, Int8Linear, int8_linear, spread_int8_linear
from worker.engine.linear import LinearFactory
from worker.engine.model import LanguageModel
from worker.engine.native.int8 import NativeInt8Linear, native_int8_linear, native_spread_int8_linear
from worker.engine.native.kernels import native_kernels
from worker.engine.native.linear import native_normed
from worker.engine.precision import Processor, UnsupportedFormatError, int8_placement
from worker.engine.request import StepOutput
from worker.engine.weights import FoldedNorm
from worker.protocol import DecodeControls, SpeculationControls
from worker.server.process import serve
from worker.settings import WorkerSettings

if TYPE_CHECKING:
    from tests.worker.engine.conftest import (
        LoadModelFolder,
        MakeRequest,
        RunningEngine,
        SaveModel,
        StartEngine,
    )

BY_ONEDNN = (int8_linear, spread_int8_linear)
NATIVE = native_kernels()
BY_US = pytest.param(
    (native_int8_linear, native_spread_int8_linear),
    marks=pytest.mark.skipif(NATIVE is None or not NATIVE.has_int8, reason="no native kernels for int8 here"),
)
both_ways = pytest.mark.parametrize("factories", [BY_ONEDNN, BY_US], ids=["onednn", "native"])
Factories: TypeAlias = tuple[LinearFactory, LinearFactory]
"""For usual inputs, and for such with outliers."""

PROMPT = "The ferry is called Solveig. The ferry Solveig carries forty cars. The ferry"


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def numpy_codes(rows: torch.Tensor) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Integers and scales, in double precision."""
    exact = rows.numpy().astype(np.float64)
    scales = np.abs(exact).max(axis=1, keepdims=True) / 127.0
    return np.rint(exact / scales), scales


def test_rows_become_the_nearest_integers_of_a_scale_of_their_own() -> None:
    rows = random(5, 96) * torch.tensor([[1e-3], [1.0], [40.0], [1e4], [1e-20]])
    codes = Codes.of(rows)
    values, scales = numpy_codes(rows)
    assert np.array_equal(codes.values.numpy(), values)
    assert np.abs(values).max(axis=1).tolist() == [127.0] * 5
    np.testing.assert_allclose(codes.scales.numpy(), scales, rtol=1e-6)


@both_ways
@pytest.mark.parametrize("num_rows", [1, 8, 33])
@pytest.mark.parametrize("has_bias", [False, True])
def test_a_projection_is_the_exact_product_of_the_integers(
    num_rows: int, has_bias: bool, factories: Factories
) -> None:
    x, weight, bias = random(num_rows, 96), random(40, 96, seed=1), random(40, seed=2)
    (a, a_scales), (b, b_scales) = numpy_codes(x), numpy_codes(weight)
    expected = (a @ b.T) * a_scales * b_scales.T + (bias.numpy() if has_bias else 0.0)
    y = factories[0](weight, bias if has_bias else None)(x)
    np.testing.assert_allclose(y.numpy(), expected, rtol=1e-5, atol=1e-5)


@both_ways
def test_no_rows_are_no_error(factories: Factories) -> None:
    assert factories[0](random(40, 32), None)(torch.empty(0, 32)).shape == (0, 40)


@both_ways
def test_the_largest_sums_do_not_saturate(factories: Factories) -> None:
    x = torch.full((2, 1536), 3.0)
    weight = torch.cat([torch.full((16, 1536), 0.5), torch.full((16, 1536), -0.5)])
    y = factories[0](weight, None)(x)
    torch.testing.assert_close(y[:, :16], torch.full((2, 16), 2304.0))
    torch.testing.assert_close(y[:, 16:], torch.full((2, 16), -2304.0))


@both_ways
def test_a_row_is_the_same_in_any_batch_and_harms_no_other(factories: Factories) -> None:
    project = factories[0](random(40, 96), None)
    x = random(33, 96, seed=3)
    alone = project(x[7:8])
    x[3], x[5], x[9] = 0.0, 1e9, float("nan")
    y = project(x)
    assert torch.equal(y[7:8], alone)
    assert torch.equal(y[3], torch.zeros(40))
    assert y[9].isnan().all()
    assert y[:9].isfinite().all()


@both_ways
def test_outliers_behind_a_gate_are_spread_before_they_are_rounded(factories: Factories) -> None:
    usual, spread = factories
    weight, x = random(40, 96), random(8, 96, seed=4)
    x[:, 11] = 80.0
    exact = x @ weight.T

    def error(y: torch.Tensor) -> float:
        return float((y - exact).norm())

    assert error(spread(weight, None)(x)) < 0.4 * error(usual(weight, None)(x))
    assert x[0, 11] == 80.0, "inputs are left as they are"


def test_inputs_that_no_block_divides_are_rounded_as_they_come() -> None:
    odd = random(40, 97)
    theirs, usual = spread_int8_linear(odd, None)(odd), int8_linear(odd, None)(odd)
    torch.testing.assert_close(theirs, usual, rtol=1e-6, atol=1e-6)


@pytest.mark.skipif(NATIVE is None or not NATIVE.has_int8, reason="no native kernels for int8 here")
def test_inputs_that_the_native_kernels_do_not_take_are_refused() -> None:
    with pytest.raises(ValueError, match="by fours, and there are 97"):
        native_int8_linear(random(40, 97), None)
    with pytest.raises(ValueError, match="blocks of 32, and there are 48 inputs"):
        native_spread_int8_linear(random(40, 48), None)
    with pytest.raises(ValueError, match=r"a bias of \[39\] for 40 outputs"):
        native_int8_linear(random(40, 96), random(39))
    for factory in (native_int8_linear, native_spread_int8_linear):
        with pytest.raises(ValueError, match="do not fit each other"):
            factory(random(40, 96), None)(random(3, 92))


@pytest.mark.skipif(NATIVE is None or not NATIVE.has_int8, reason="no native kernels for int8 here")
@pytest.mark.parametrize(("num_outputs", "num_inputs"), [(40, 96), (1, 32), (33, 64), (70, 1536)])
@pytest.mark.parametrize("num_rows", [*range(1, 14), 50])
def test_both_ways_give_the_same_numbers(num_rows: int, num_outputs: int, num_inputs: int) -> None:
    weight, x = random(num_outputs, num_inputs), random(num_rows, num_inputs, seed=5)
    for theirs, ours in zip(BY_ONEDNN, (native_int8_linear, native_spread_int8_linear), strict=True):
        torch.testing.assert_close(
            ours(weight, None)(x), theirs(weight, None)(x), rtol=1e-5, atol=1e-5 * num_inputs
        )


@pytest.mark.skipif(NATIVE is None or not NATIVE.has_int8, reason="no native kernels for int8 here")
def test_a_norm_is_a_part_of_the_native_projections_scales() -> None:
    weight, residual = random(40, 96), random(3, 96, seed=7)
    residual[1] *= 1e-3  # where eps counts
    normed = native_normed(FoldedNorm.of(96, 1e-5), native_int8_linear(weight, None))
    lengths = (residual.square().sum(1, keepdim=True) + 96 * 1e-5).sqrt()
    expected = int8_linear(weight, None)(residual) / lengths
    torch.testing.assert_close(normed(residual, torch.empty(0)), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kernels", ["auto", "torch"])
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_a_model_with_biases_and_a_head_of_its_own_is_the_same_model(
    dtype: str, kernels: str, save_model: SaveModel, load_model_folder: LoadModelFolder
) -> None:
    config = Qwen2Config(
        vocab_size=300,
        hidden_size=96,
        intermediate_size=160,
        num_hidden_layers=3,
        num_attention_heads=3,
        num_key_value_heads=1,
        initializer_range=0.1,
        tie_word_embeddings=False,
    )
    folder, reference = save_model(config)
    ids = tuple(range(20, 44))
    with torch.inference_mode():
        expected = reference(torch.tensor([ids])).logits[0]
    model = load_model_folder(
        folder, dtype=dtype, kernels=kernels, weights="int8", max_batch=2, max_context=64
    )
    can_be_native = NATIVE is not None and NATIVE.has_int8 and Processor.best().has_native_kernels
    is_native = can_be_native and kernels == "auto" and dtype == "bf16"
    assert model.kernels == ("native" if is_native else "onednn")
    logits = model.forward([Piece(0, 0, ids, len(ids))])
    assert 0.0 < float((logits - expected).norm() / expected.norm()) < 0.06
    assert model.dtype == (torch.float32 if dtype == "fp32" else torch.bfloat16)


@pytest.fixture(scope="module")
def int8_model(model_path: Path, load_model_folder: LoadModelFolder) -> LanguageModel:
    return load_model_folder(model_path, weights="int8", max_batch=3, max_context=256)


def test_the_real_model_loses_what_was_measured_and_no_more(
    int8_model: LanguageModel, tokenizer: Any, language_model: Any
) -> None:
    ids = tokenizer.encode(
        "The Solveig is a ferry. She is powered by two hydrogen fuel cells and carries forty cars. In "
        "winter the harbour is closed, and the old lighthouse keeper writes down every ship that waits "
        "outside. Bread is made of flour, water, salt and yeast; knead it for ten minutes and let it rise."
    )
    with torch.inference_mode():
        exact = language_model(torch.tensor([ids])).logits[0].log_softmax(-1)
    logprobs = int8_model.forward([Piece(0, 0, tuple(ids), len(ids))]).log_softmax(-1)
    int8_model.clear(0, len(ids))
    divergence = (exact.exp() * (exact - logprobs)).sum(-1)
    assert 1e-4 < float(divergence.mean()) < 0.025  # measured 0.008; without the rotation 0.1
    assert float((exact.argmax(-1) == logprobs.argmax(-1)).float().mean()) > 0.88


def entropies(running: RunningEngine, name: str) -> list[float]:
    outputs = [e for e in running.events if isinstance(e, StepOutput) and e.request_id == name]
    return [output.record.entropy_nats for output in outputs]


def test_drafts_a_kept_beginning_and_a_replay_beside_another_change_no_word(
    int8_model: LanguageModel, tokenizer: Any, start_engine: StartEngine, make_request: MakeRequest
) -> None:
    ids = tokenizer.encode(PROMPT)
    drafts = DecodeControls(speculation=SpeculationControls(mode="fixed", max_draft=3))
    running = start_engine(int8_model)
    running.submit(make_request("plain", ids, 10))
    running.run()
    words = running.tokens("plain")
    running.submit(make_request("drafted", ids, 10, controls=drafts))
    running.run()  # alone: in company so short a draft is not worth its rows
    running.submit(
        make_request("again", ids, 10),
        make_request("replayed", ids, 10, forced_ids=tuple(words), is_exclusive=False),
    )
    running.run()
    assert running.failures() == {}
    assert running.tokens("drafted") == running.tokens("again") == words
    # As far as bf16's, since attention's last digits let some codes fall the other way.
    assert entropies(running, "replayed") == pytest.approx(entropies(running, "plain"), abs=0.3)
    stats = running.engine.stats()
    assert stats.accepted > 0
    assert stats.prefix_found > 0


def test_a_processor_without_byte_products_is_told_what_is_missing(tiny_folder: Path) -> None:
    from transformers import AutoConfig

    architecture = Architecture.from_config(AutoConfig.from_pretrained(str(tiny_folder)))
    able = Processor(torch.device("cpu"), True, False, True, has_int8_dot_products=True)
    assert int8_placement(torch.bfloat16, able, architecture).make_linear is int8_linear
    if NATIVE is not None and NATIVE.has_int8:
        native = int8_placement(torch.bfloat16, replace(able, has_native_kernels=True), architecture)
        assert native.make_linear is native_int8_linear
    with pytest.raises(UnsupportedFormatError, match="int8 weights need a CPU with AVX-512 VNNI"):
        int8_placement(torch.bfloat16, replace(able, has_int8_dot_products=False), architecture)


def test_a_model_that_transformers_runs_is_not_served_in_int8(
    save_model: SaveModel, model_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder, _ = save_model(GPT2Config(vocab_size=300, n_embd=32, n_layer=1, n_head=2))
    for source in model_path.glob("tokenizer*"):
        (folder / source.name).symlink_to(source)
    assert serve(WorkerSettings(weights="int8", threads=1), folder) == 2
    assert "int8 weights are for the Llama family: model type 'gpt2'" in caplog.text


def test_weights_of_a_small_model_are_prepacked(int8_model: Any) -> None:
    projections = list(int8_model._narrow.weights.projections())
    assert len(projections) == 30 * 4 + 1
    expected = NativeInt8Linear if int8_model.kernels == "native" else Int8Linear
    assert all(isinstance(linear, expected) for linear in projections)
