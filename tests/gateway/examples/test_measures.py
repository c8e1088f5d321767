"""The measures of the examples, worked out by hand."""

from __future__ import annotations

import pytest

from gateway.examples.keyword_gravity import rate, words


def test_words_are_lower_case_letters() -> None:
    assert words("A binary-search: 3 Steps, done.") == ["a", "binary", "search", "steps", "done"]


def test_the_rate_counts_words_and_their_plurals() -> None:
    text = words("search the array, then search both arrays again")
    assert rate(text, ("search", "array")) == pytest.approx(4 / 8)
    assert rate([], ("search",)) == 0.0
