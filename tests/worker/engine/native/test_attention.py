"""Attention in C, against softmax(Q Kᵀ / sqrt(d)) V in float64; rotation and rounding against torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from worker.engine.architecture import Architecture
from worker.engine.batch import Piece, lay_out
from worker.engine.kv import KVStore
from worker.engine.native.attention import NativeAttention
from worker.engine.native.kernels import native_kernels
from worker.engine.rotary import Rotary
from worker.engine.weights import LayerWeights

pytestmark = pytest.mark.skipif(native_kernels() is None, reason="no native kernels here")

CPU = torch.device("cpu")
NUM_SLOTS, SLOT_TOKENS = 4, 208
LAYER: Any = LayerWeights(None, None, None, None, None, None)  # type: ignore[arg-type]  # no norms of heads


def architecture_of(num_heads: int = 6, num_kv_heads: int = 2, head_dim: int = 64) -> Architecture:
    return Architecture(
        vocab_size=10,
        hidden_size=num_heads * head_dim,
        intermediate_size=8,
        num_layers=2,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        norm_eps=1e-5,
        has_tied_head=True,
        max_positions=SLOT_TOKENS,
        rotary={"rope_type": "default", "rope_theta": 10_000.0},
    )


@dataclass
class Case:
    """A store that a few sequences have been written to by single tokens, and what was written."""

    shape: Architecture
    store: KVStore
    rotary: Rotary
    attention: NativeAttention

    @classmethod
    def of(cls, shape: Architecture) -> Case:
        store = KVStore(shape, NUM_SLOTS, SLOT_TOKENS, torch.bfloat16, CPU)
        rotary = Rotary.table(shape, SLOT_TOKENS, torch.float32, CPU)
        return cls(shape, store, rotary, NativeAttention(shape, store))

    def attend(self, pieces: list[Piece], fused: Tensor) -> Tensor:
        layout = lay_out(pieces, CPU)
        return self.attention.begin(pieces, layout, self.rotary).attend(1, fused.clone(), LAYER)

    def expected(self, piece: Piece, fused: Tensor) -> Tensor:
        """In float64, from what the store holds."""
        shape, group = self.shape, self.shape.num_heads // self.shape.num_kv_heads
        heads = fused.view(len(fused), -1, shape.head_dim).clone()
        positions = torch.arange(piece.start, piece.end)
        self.rotary.at(positions).rotate_(heads[:, : shape.num_heads])
        keys, values = self.store.read(slice(piece.slot, piece.slot + 1), piece.end)
        k, v = (each[1][0].double().repeat_interleave(group, 0) for each in (keys, values))
        scores = (
            heads[:, : shape.num_heads].double().transpose(0, 1) @ k.transpose(1, 2) * shape.head_dim**-0.5
        )
        hidden = torch.arange(piece.end) > positions[:, None]
        attended: Tensor = (
            (scores.masked_fill(hidden, float("-inf")).softmax(-1) @ v).transpose(0, 1).flatten(1)
        )
        return attended

    def random(self, num_tokens: int, seed: int = 0) -> Tensor:
        width = self.shape.num_fused_heads * self.shape.head_dim
        return torch.randn(num_tokens, width, generator=torch.Generator().manual_seed(seed)) * 2


def piece(slot: int, start: int, num_tokens: int, **fields: Any) -> Piece:
    return Piece(slot, start, (5,) * num_tokens, 1, **fields)


@pytest.mark.parametrize(
    "shape",
    [
        architecture_of(),
        architecture_of(9, 3, 64),
        architecture_of(4, 4, 32),
        architecture_of(3, 1, 96),
        architecture_of(8, 2, 128),
        architecture_of(26, 2, 32),
    ],
)
@pytest.mark.parametrize("num_tokens", [1, 2, 63, 64, 65, 130, 200])
def test_chunks_of_every_length_attend_to_themselves(shape: Architecture, num_tokens: int) -> None:
    case = Case.of(shape)
    fused, whole = case.random(num_tokens), piece(2, 0, num_tokens)
    attended = case.attend([whole], fused)
    torch.testing.assert_close(attended.double(), case.expected(whole, fused), rtol=1e-4, atol=2e-5)


def test_a_ragged_batch_attends_piece_by_piece() -> None:
    case = Case.of(architecture_of())
    for slot, length in ((0, 70), (1, 3), (3, 128)):
        case.attend([piece(slot, 0, length)], case.random(length, slot))
    pieces = [piece(0, 70, 1), piece(3, 128, 1), piece(1, 3, 5), piece(2, 0, 40)]
    fused = case.random(47, 9)
    attended = case.attend(pieces, fused)
    row = 0
    for each in pieces:
        rows = slice(row, row := row + len(each.token_ids))
        torch.testing.assert_close(
            attended[rows].double(), case.expected(each, fused[rows]), rtol=1e-4, atol=2e-5
        )


@pytest.mark.parametrize("shape", [architecture_of(), architecture_of(9, 3, 64), architecture_of(8, 2, 128)])
def test_a_row_does_not_depend_on_what_is_beside_it_nor_on_threads(shape: Architecture) -> None:
    case, alone = Case.of(shape), Case.of(shape)
    fused = case.random(150)
    whole = case.attend([piece(1, 0, 150)], fused)
    one_by_one = [alone.attend([piece(1, at, 1)], fused[at : at + 1]) for at in range(150)]
    assert torch.equal(torch.cat(one_by_one), whole)
    assert torch.equal(
        alone.attend([piece(1, 97, 9), piece(0, 0, 3)], torch.cat((fused[97:106], fused[:3])))[:9],
        whole[97:106],
    )
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2 if threads == 1 else 1)
        assert torch.equal(case.attend([piece(1, 0, 150)], fused), whole)
    finally:
        torch.set_num_threads(threads)


def test_keys_and_values_are_written_as_torch_rounds_them() -> None:
    case = Case.of(architecture_of())
    fused = case.random(5)
    fused[0, -3:] = torch.tensor([float("nan"), float("inf"), -float("inf")])
    case.attend([piece(1, 7, 5)], fused)
    shape = case.shape
    heads = fused.view(5, -1, shape.head_dim).clone()
    case.rotary.at(torch.arange(7, 12)).rotate_(heads[:, : shape.num_heads + shape.num_kv_heads])
    written = case.store.rows[1][SLOT_TOKENS + 7 : SLOT_TOKENS + 12]
    expected = heads[:, shape.num_heads :].flatten(1)
    values = expected[:, shape.num_kv_heads * shape.head_dim :].to(torch.bfloat16)
    assert torch.equal(
        written[:, shape.num_kv_heads * shape.head_dim :].nan_to_num(7.0), values.nan_to_num(7.0)
    )
    torch.testing.assert_close(written.float(), expected, rtol=2**-8, atol=1e-6, equal_nan=True)
    assert not case.store.rows[0].any()  # the other layer
    assert not case.store.rows[1][: SLOT_TOKENS + 7].any()
    assert not case.store.rows[1][SLOT_TOKENS + 12 :].any()


def test_rows_of_another_width_are_refused_before_they_are_read() -> None:
    case = Case.of(architecture_of())
    with pytest.raises(ValueError, match="do not fit each other"):
        case.attend([piece(0, 0, 2)], case.random(2)[:, :-64])


def test_scores_of_thousands_do_not_overflow() -> None:
    case = Case.of(architecture_of())
    fused, whole = case.random(90) * 10, piece(0, 0, 90)
    attended = case.attend([whole], fused)
    assert torch.isfinite(attended).all()
    torch.testing.assert_close(attended.double(), case.expected(whole, fused), rtol=1e-3, atol=1e-2)


def test_what_is_no_number_stays_in_its_sequence() -> None:
    case = Case.of(architecture_of())
    fused = case.random(7)
    fused[1, 5] = float("nan")
    attended = case.attend([piece(0, 0, 4), piece(1, 0, 3)], fused)
    assert torch.isnan(attended[1, :64]).all()
    assert torch.isfinite(attended[[0, 2, 3, 4, 5, 6]]).all()


@pytest.mark.parametrize("lie_apart", [False, True])
def test_a_piece_may_have_rows_of_its_own_and_be_looked_at(lie_apart: bool) -> None:
    case = Case.of(architecture_of())
    case.attend([piece(0, 0, 100)], case.random(100))
    fused = case.random(3, 8)
    seen: list[tuple[Tensor, Tensor]] = []

    class Kept:
        def read(self, layer: int, end: int) -> tuple[Tensor, Tensor]:
            assert (layer, end) == (1, 101)
            rows = case.store.rows[1][40:101].view(1, 61, -1, 64).transpose(1, 2)
            keys, values = rows.clone(memory_format=torch.preserve_format).chunk(2, 1)
            return (keys.contiguous(), values.contiguous()) if lie_apart else (keys, values)

    class Look:
        def add(self, queries: Tensor, keys: Tensor) -> None:
            seen.append((queries.clone(), keys.clone()))

    pieces = [piece(0, 100, 1, kept=Kept(), look=Look()), piece(1, 0, 2)]
    attended = case.attend(pieces, fused)
    # The same as a sequence that consists of the kept rows, whose last one is this token's.
    apart = Case.of(case.shape)
    apart.store.rows[1][:61] = case.store.rows[1][40:101]
    expected = apart.expected(
        piece(0, 60, 1), _rotated_elsewhere(case, fused[:1], written_at=100, read_at=60)
    )
    torch.testing.assert_close(attended[:1].double(), expected, rtol=1e-4, atol=2e-5)
    torch.testing.assert_close(
        attended[1:].double(), case.expected(pieces[1], fused[1:]), rtol=1e-4, atol=2e-5
    )
    ((queries, keys),) = seen
    assert (queries.shape, keys.shape) == ((1, 6, 64), (2, 101, 64))
    assert torch.equal(keys[0, 40], case.store.rows[1][40, :64])


def _rotated_elsewhere(case: Case, fused: Tensor, written_at: int, read_at: int) -> Tensor:
    """Queries that, rotated for ``read_at``, are what they are rotated for ``written_at``."""
    heads = fused.view(1, -1, case.shape.head_dim).clone()
    case.rotary.at(torch.tensor([written_at])).rotate_(heads)
    there = case.rotary.at(torch.tensor([read_at]))
    Rotary(there.cos, -there.signed_sin).rotate_(heads)
    return heads.flatten(1)
