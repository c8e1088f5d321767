"""How a step's pieces become rows, attention calls and masks; worked out by hand."""

from __future__ import annotations

import torch
from torch import Tensor

from worker.engine.batch import Layout, Piece, Segment, lay_out, segments_of

CPU = torch.device("cpu")


def layout_of(*pieces: Piece) -> Layout:
    return lay_out(pieces, CPU)


def segments_for(*pieces: Piece) -> tuple[Segment, ...]:
    return segments_of(pieces, torch.float32, CPU)


def token_at(slot: int, position: int) -> Piece:
    return Piece(slot, position, (100 + slot,), 1)


def visible(mask: Tensor | None) -> list[list[int]]:
    """Zeros and ones instead of minus infinities and zeros, a list for each sequence's last query."""
    assert mask is not None
    return torch.isfinite(mask).int()[:, 0, -1].tolist()


def test_rows_carry_their_token_position_and_slot() -> None:
    layout = layout_of(token_at(0, 4), Piece(3, 2, (7, 8, 9), 1))
    assert layout.token_ids.tolist() == [100, 7, 8, 9]
    assert layout.positions.tolist() == [4, 2, 3, 4]
    assert layout.slots.tolist() == [0, 3, 3, 3]


def test_only_last_rows_that_want_logits_are_sampled() -> None:
    layout = layout_of(token_at(0, 4), Piece(1, 0, (7, 8), 0), Piece(2, 0, (5, 6, 7), 1))
    assert layout.sampled_rows is not None
    assert layout.sampled_rows.tolist() == [0, 5]
    assert layout_of(token_at(0, 4), token_at(1, 9)).sampled_rows is None


def test_adjacent_slots_of_one_length_are_one_call_without_a_mask() -> None:
    (segment,) = segments_for(token_at(2, 5), token_at(3, 5), token_at(4, 5))
    assert (segment.slots, segment.rows) == (slice(2, 5), slice(0, 3))
    assert segment.kv_length == 6
    assert segment.mask is None
    assert not segment.is_causal


def test_adjacent_slots_of_different_lengths_share_a_mask() -> None:
    (segment,) = segments_for(token_at(0, 1), token_at(1, 3))
    assert segment.kv_length == 4
    assert visible(segment.mask) == [[1, 1, 0, 0], [1, 1, 1, 1]]


def test_a_hole_between_slots_begins_another_call() -> None:
    first, second = segments_for(token_at(0, 5), token_at(2, 5))
    assert (first.slots, second.slots) == (slice(0, 1), slice(2, 3))
    assert (first.rows, second.rows) == (slice(0, 1), slice(1, 2))


def test_a_long_sequence_does_not_make_short_neighbours_pay_for_it() -> None:
    segments = segments_for(*(token_at(slot, 50) for slot in range(8)), token_at(8, 4000))
    assert [segment.kv_length for segment in segments] == [51, 4001]


def test_a_chunk_that_begins_its_sequence_is_causal_without_a_mask() -> None:
    (segment,) = segments_for(Piece(1, 0, (5, 6, 7), 1))
    assert segment.is_causal
    assert segment.mask is None


def test_a_later_chunk_sees_what_came_before_and_not_what_follows() -> None:
    (segment,) = segments_for(Piece(1, 2, (5, 6), 1))
    assert not segment.is_causal
    assert segment.mask is not None
    assert torch.isfinite(segment.mask)[0, 0].int().tolist() == [[1, 1, 1, 0], [1, 1, 1, 1]]


def test_chunks_are_calls_of_their_own_also_in_adjacent_slots() -> None:
    segments = segments_for(token_at(0, 5), Piece(1, 0, (5, 6), 1), Piece(2, 0, (7, 8), 1))
    assert [segment.is_chunk for segment in segments] == [False, True, True]
    assert [segment.is_causal for segment in segments] == [False, True, True]


def test_a_prompt_of_one_token_needs_no_mask() -> None:
    (segment,) = segments_for(Piece(0, 0, (5,), 1))
    assert segment.kv_length == 1
    assert segment.mask is None


def test_a_draft_wants_the_logits_of_each_of_its_tokens() -> None:
    layout = layout_of(Piece(0, 4, (7, 8, 9), 3), Piece(1, 0, (5, 6, 7), 1))
    assert layout.sampled_rows is not None
    assert layout.sampled_rows.tolist() == [0, 1, 2, 5]
