"""Long texts in pieces."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.context.windows import windows


@settings(max_examples=50)
@given(st.text(min_size=1), st.integers(8, 40))
def test_no_piece_is_too_long_and_nothing_that_can_be_read_is_lost(text: str, max_bytes: int) -> None:
    pieces = windows(text, max_bytes)
    assert all(0 < len(piece.encode()) <= max_bytes for piece in pieces)
    assert "".join("".join(pieces).split()) == "".join(text.encode("utf-8", "replace").decode().split())


def test_it_is_cut_at_a_space_where_there_is_one() -> None:
    assert windows("the harbour is deep enough", 14) == ["the harbour ", "is deep enough"]
    assert windows("unbrokenandunending", 8) == ["unbroken", "andunend", "ing"]


def test_chinese_is_cut_between_characters() -> None:
    assert windows("望远镜的镜面", 7) == ["望远", "镜的", "镜面"]


@pytest.mark.parametrize("text", ["", "  \n"])
def test_a_text_with_nothing_to_read_is_one_piece(text: str) -> None:
    assert windows(text) == [" "]
