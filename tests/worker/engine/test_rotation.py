"""The basis that int8 weights are rounded in."""

from __future__ import annotations

import pytest
import torch

from worker.engine.rotation import Rotation, hadamard, largest_power_of_two


@pytest.mark.parametrize("size", [576, 64, 96, 7, 1])
def test_a_rotation_is_orthogonal_whatever_the_size(size: int) -> None:
    matrix = Rotation.of(size).rotate(torch.eye(size))
    torch.testing.assert_close(matrix @ matrix.T, torch.eye(size), rtol=0.0, atol=1e-5)


def test_what_writes_the_stream_and_what_reads_it_still_fit_each_other() -> None:
    generator = torch.Generator().manual_seed(1)
    rotation = Rotation.of(96)
    writer, reader = torch.randn(96, 40, generator=generator), torch.randn(24, 96, generator=generator)
    turned = rotation.rotate(reader) @ rotation.rotate_outputs(writer)
    torch.testing.assert_close(turned, reader @ writer, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("stream", [torch.eye(576)[17] * 30.0, torch.ones(576)], ids=["outlier", "constant"])
def test_no_channel_stands_out_of_a_turned_stream(stream: torch.Tensor) -> None:
    turned = Rotation.of(576).rotate(stream)
    root_mean_square = float(turned.square().mean().sqrt())
    assert float(turned.abs().max()) < 4.5 * root_mean_square  # a normal distribution's would be about 3.3
    assert float(turned.norm()) == pytest.approx(float(stream.norm()), rel=1e-5)


def test_a_hadamard_matrix_has_orthogonal_rows_of_ones() -> None:
    matrix = hadamard(8)
    assert set(matrix.flatten().tolist()) == {1.0, -1.0}
    assert torch.equal(matrix @ matrix.T, 8.0 * torch.eye(8))


def test_blocks_divide_what_they_are_blocks_of() -> None:
    sizes = (576, 1536, 4096, 7)
    assert [largest_power_of_two(size, 64) for size in sizes] == [64, 64, 64, 1]
    assert largest_power_of_two(96, 32) == 32
