"""The share of repeated n-grams, counted by hand."""

from __future__ import annotations

import pytest

from gateway.lab.repetition import rep_n


def test_rep_4_is_the_share_of_4_grams_seen_before() -> None:
    # a b c d a b c d: abcd bcda cdab dabc abcd -> 4 distinct of 5
    assert rep_n(list("abcdabcd"), 4) == pytest.approx(1 / 5)
    assert rep_n(list("abcdefgh"), 4) == 0.0
    assert rep_n(list("abc"), 4) == 0.0
