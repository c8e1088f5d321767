"""Lexical signals against the formulas, worked out by hand."""

from __future__ import annotations

import math

import pytest

from gateway.context.lexical import match_terms

# Content words: 3, 2 and 4; "silver" is in two texts, "mirror" in one.
TEXTS = ["silver mirror silver", "copper pan", "silver spoon fork knife"]


def idf(holders: int) -> float:
    return math.log(1 + (3 - holders + 0.5) / (holders + 0.5))


def test_bm25_is_the_formula_of_okapi() -> None:
    average = (3 + 2 + 4) / 3

    def part(frequency: int, length: int, holders: int) -> float:
        relative = 0.25 + 0.75 * length / average
        return idf(holders) * frequency * 2.2 / (frequency + 1.2 * relative)

    expected = [part(2, 3, 2) + part(1, 3, 1), 0.0, part(1, 4, 2)]
    assert match_terms({"silver": 1.0, "mirror": 1.0}, TEXTS).bm25() == pytest.approx(expected)


def test_a_term_counts_by_its_weight() -> None:
    half = match_terms({"silver": 0.5}, TEXTS).bm25()
    assert half == pytest.approx(0.5 * match_terms({"silver": 1.0}, TEXTS).bm25())


def test_coverage_is_the_share_of_the_weight_of_the_terms_that_are_there() -> None:
    matches = match_terms({"silver": 1.0, "mirror": 1.0, "gold": 1.0}, TEXTS)
    whole = idf(2) + idf(1) + idf(0)
    assert matches.coverage() == pytest.approx([(idf(2) + idf(1)) / whole, 0.0, idf(2) / whole])


def test_beyond_is_what_the_best_text_lacks() -> None:
    matches = match_terms({"silver": 1.0, "copper": 1.0}, TEXTS)
    whole = idf(2) + idf(1)
    assert matches.beyond(0) == pytest.approx([0.0, idf(1) / whole, 0.0])


def test_without_terms_nothing_is_covered() -> None:
    matches = match_terms({}, TEXTS)
    assert matches.coverage().tolist() == [0.0, 0.0, 0.0]
    assert matches.bm25().tolist() == [0.0, 0.0, 0.0]
