from __future__ import annotations

import pytest

from gateway.context.words import (
    content_words,
    is_latin,
    is_number,
    names,
    sentence_starts,
    words,
)


def test_words_are_lower_cased_and_numbers_stay_whole() -> None:
    assert words("The O'Neil's paid 3,000.50 at 10:30, co-op!") == [
        "the",
        "o'neil's",
        "paid",
        "3,000.50",
        "at",
        "10:30",
        "co",
        "op",
    ]


def test_scripts_without_spaces_fall_into_characters() -> None:
    assert words("東京は首都") == ["東", "京", "は", "首", "都"]


def test_content_words_leave_out_what_says_nothing() -> None:
    assert content_words("Who was the father of Jason?") == ["father", "jason"]


def test_names_are_capitalised_terms_without_sentence_openers() -> None:
    assert names("However, The Kestrel flew over Łódź and école near IBM.") == {"Kestrel", "Łódź", "IBM"}


def test_sentences_begin_after_their_ends_in_every_script() -> None:
    text = "One. Two!\n\nThree。四"
    starts = sentence_starts(text)
    assert [text[a:b].strip() for a, b in zip(starts, [*starts[1:], len(text)], strict=True)] == [
        "One.",
        "Two!",
        "Three。",
        "四",
    ]
    assert sentence_starts("") == [0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain English", True),
        ("Łowicz, Øresund, naïve", True),
        ("12:30 — 4.5 %", True),
        ("香港第六届立法会", False),
        ("Привет, мир", False),
        ("مرحبا", False),
        ("東京 Tokyo tower in Japan", True),
        ("これは日本語 ok", False),
    ],
)
def test_a_text_is_latin_where_half_of_its_letters_are(text: str, expected: bool) -> None:
    assert is_latin(text) is expected


def test_numbers_may_be_spelled_out() -> None:
    assert [is_number(word) for word in ("1931", "3,000", "Seven", "silver")] == [True, True, True, False]
