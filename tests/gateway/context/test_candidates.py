"""What may be the answer, and how far strong chunks agree on it, against counts by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gateway.context.candidates import find_candidates

TEXTS = [
    "The bridge at Ostrey was opened by Tamsin Vole on 4 May 1931. It has six arches.",
    "Tamsin Vole opened it.",
    "a toll is paid there.",
]


@pytest.mark.parametrize(
    ("question", "terms"),
    [
        ("When was the bridge at Ostrey opened?", {"4", "may", "1931"}),
        ("What year was the bridge at Ostrey opened?", {"4", "may", "1931"}),
        ("How many arches has the bridge at Ostrey?", {"4", "1931", "six"}),
        ("Who opened the bridge at Ostrey?", {"tamsin", "vole"}),
        ("Name the bridge of Ostrey's opening.", {"ostrey", "tamsin", "vole", "4", "1931", "six"}),
    ],
)
def test_a_question_asks_for_words_of_a_kind_that_it_does_not_have(question: str, terms: set[str]) -> None:
    assert find_candidates(question, TEXTS).terms[0] == terms


def test_sentences_with_a_candidate_are_marked() -> None:
    found = find_candidates("Who opened the bridge at Ostrey?", TEXTS)
    assert [marks.tolist() for marks in found.in_sentence] == [[True, False], [True], [False]]


def test_agreement_is_the_rarity_of_what_strong_others_say_too() -> None:
    found = find_candidates("Who opened the bridge at Ostrey?", TEXTS)
    # "tamsin" and "vole" stand in two of three. The first chunk's other has 0.5 of the 0.7 beside itself.
    rarity = math.log(3 / 2)
    expected = [2 * rarity * 0.5 / 0.7, 2 * rarity * 1.0 / 1.2, 0.0]
    assert found.agreement(np.array([1.0, 0.5, 0.2])) == pytest.approx(expected)


def test_what_every_chunk_says_counts_nothing() -> None:
    found = find_candidates("Who was it?", ["Tamsin Vole.", "Tamsin Vole."])
    assert found.agreement(np.array([1.0, 1.0])).tolist() == [0.0, 0.0]


def test_an_empty_text_has_no_candidates() -> None:
    found = find_candidates("Who was it?", [""])
    assert found.terms == (frozenset(),)
    assert not found.in_sentence[0].any()
