"""Products in C, against numpy in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from worker.engine.native.kernels import native_kernels
from worker.engine.native.linear import NativeLinear, native_gated, native_linear, native_normed
from worker.engine.weights import FoldedNorm, NormedLinear, RMSNorm

pytestmark = pytest.mark.skipif(native_kernels() is None, reason="no native kernels here")


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def linear_of(weight: Tensor, bias: Tensor | None = None) -> NativeLinear:
    linear = native_linear(weight, bias)
    assert isinstance(linear, NativeLinear)
    return linear


def exact(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    rounded = weight.to(torch.bfloat16).float().numpy().astype(np.float64)
    product = x.numpy().astype(np.float64) @ rounded.T
    return torch.from_numpy(product if bias is None else product + bias.numpy())


@pytest.mark.parametrize("num_rows", [*range(1, 14), 25, 241])
@pytest.mark.parametrize(("num_outputs", "num_inputs"), [(64, 96), (32, 2), (1, 34), (47, 64), (80, 162)])
def test_every_number_of_rows_and_outputs_is_multiplied_right(
    num_rows: int, num_outputs: int, num_inputs: int
) -> None:
    weight, x, bias = random(num_outputs, num_inputs), random(num_rows, num_inputs), random(num_outputs)
    expected = exact(x, weight, bias)
    torch.testing.assert_close(linear_of(weight, bias)(x).double(), expected, rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(linear_of(weight)(x).double(), expected - bias, rtol=1e-5, atol=1e-4)


def test_a_row_does_not_depend_on_what_is_beside_it_nor_on_threads() -> None:
    linear, x = linear_of(random(200, 130)), random(250, 130)
    together = linear(x)
    for start, size in ((0, 1), (7, 2), (100, 12), (239, 11), (13, 100)):
        assert torch.equal(linear(x[start : start + size]), together[start : start + size])
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2 if threads == 1 else 1)
        assert torch.equal(linear(x), together)
    finally:
        torch.set_num_threads(threads)


def test_no_rows_are_no_error() -> None:
    assert linear_of(random(40, 32))(torch.empty(0, 32)).shape == (0, 40)
    assert native_gated(torch.empty(0, 8)).shape == (0, 4)


def test_rows_that_are_not_contiguous_are_multiplied_too() -> None:
    weight, x = random(40, 16), random(6, 32)[:, ::2]
    torch.testing.assert_close(linear_of(weight)(x).double(), exact(x, weight), rtol=1e-5, atol=1e-5)


def test_what_is_no_number_stays_in_its_row() -> None:
    x = random(5, 16)
    x[2, 3] = float("nan")
    x[4, 0] = float("inf")
    y = linear_of(random(40, 16))(x)
    assert torch.isnan(y[2]).all()
    assert not torch.isfinite(y[4]).any()
    assert torch.isfinite(y[[0, 1, 3]]).all()


def test_a_norm_is_joined_to_its_projection() -> None:
    weight, norm_weight, residual = random(70, 64), random(64, seed=1), random(3, 64, seed=2)
    residual[1] *= 1e-3  # where eps counts
    residual[2] = 0.0
    folded = native_normed(FoldedNorm.of(64, 1e-5), native_linear(FoldedNorm.fold(norm_weight, weight), None))
    rounded = FoldedNorm.fold(norm_weight, weight).to(torch.bfloat16).float() / 8.0  # fold gives sqrt(64)
    expected = torch.nn.functional.rms_norm(residual.double(), (64,), eps=1e-5) @ rounded.double().T
    torch.testing.assert_close(folded(residual, torch.empty(0)).double(), expected, rtol=1e-5, atol=1e-5)


def test_a_norm_that_is_not_folded_stays_apart() -> None:
    norm = RMSNorm(random(16), 1e-5)
    assert isinstance(native_normed(norm, native_linear(random(4, 16), None)), NormedLinear)


def test_shapes_that_do_not_fit_are_refused_before_they_are_read() -> None:
    linear = linear_of(random(40, 16))
    for x in (random(3, 18), random(3, 14), random(3, 16).bfloat16(), random(16)):
        with pytest.raises(ValueError, match="do not fit each other"):
            linear(x)
    with pytest.raises(ValueError, match=r"a bias of \[39\] for 40 outputs"):
        native_linear(random(40, 16), random(39))
    with pytest.raises(ValueError, match="do not fit each other"):
        native_gated(random(2, 7))


def test_an_odd_number_of_inputs_is_refused() -> None:
    with pytest.raises(ValueError, match="in pairs, and there are 7"):
        native_linear(random(4, 7), None)


@pytest.mark.parametrize("inner", [1, 15, 16, 160])
def test_the_gate_is_silu_times_up(inner: int) -> None:
    gate_up = random(5, 2 * inner) * 8
    gate, up = gate_up.double().chunk(2, -1)
    expected = gate / (1.0 + (-gate).exp()) * up
    torch.testing.assert_close(native_gated(gate_up).double(), expected, rtol=2e-6, atol=1e-7)


def test_gates_far_from_zero_saturate_and_what_is_no_number_is_told() -> None:
    gates = torch.tensor([-1e30, -200.0, -88.0, -87.0, 87.0, 88.0, 200.0, 1e30, float("nan")])
    gated = native_gated(torch.cat((gates, torch.ones(9)))[None])[0]
    expected = torch.nn.functional.silu(gates.double()).float()
    torch.testing.assert_close(gated, expected, rtol=1e-5, atol=1e-36, equal_nan=True)
