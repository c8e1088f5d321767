from __future__ import annotations

import pytest

from gateway.context.duplicates import containment as share_contained
from gateway.context.duplicates import contradicts, find_duplicates, word_grams
from gateway.context.report import Document

ORIGINAL = (
    "The harbour ferry leaves Ness at 07:10 on weekdays. It takes forty minutes to Brodick. "
    "Bicycles travel free of charge. Dogs are welcome on the upper deck."
)


def documents(*texts: str) -> list[Document]:
    return [Document(f"d{index}", text) for index, text in enumerate(texts)]


def test_containment_is_the_share_of_three_word_runs() -> None:
    # a b c d e has abc, bcd, cde; x b c d e y has xbc, bcd, cde, dey: 2 of 4 are shared.
    assert share_contained(word_grams("x b c d e y"), word_grams("a b c d e")) == pytest.approx(2 / 4)
    assert share_contained(word_grams("a b c d e"), word_grams("x b c d e y")) == pytest.approx(2 / 3)


def test_a_copy_with_a_sentence_dropped_repeats_the_earlier_one() -> None:
    shorter = ORIGINAL.replace("Bicycles travel free of charge. ", "")
    assert find_duplicates(documents(ORIGINAL, "Something else entirely is said here.", shorter)) == {2: 0}
    assert find_duplicates(documents(shorter, ORIGINAL)) == {1: 0}


def test_a_copy_with_a_prefix_repeats_the_earlier_one() -> None:
    assert find_duplicates(documents(ORIGINAL, "From the archive of Monday: " + ORIGINAL)) == {1: 0}


def test_case_and_punctuation_make_no_difference() -> None:
    assert find_duplicates(documents(ORIGINAL, ORIGINAL.upper().replace(".", " –"))) == {1: 0}


def test_a_long_text_that_quotes_a_short_one_is_no_copy_of_it() -> None:
    quoted = "Bicycles travel free of charge."
    assert find_duplicates(documents(quoted, ORIGINAL)) == {}


def test_another_number_in_the_same_place_is_no_copy() -> None:
    other = ORIGINAL.replace("07:10", "08:25")
    assert find_duplicates(documents(ORIGINAL, other)) == {}


def test_another_name_in_the_same_place_is_no_copy() -> None:
    assert find_duplicates(documents(ORIGINAL, ORIGINAL.replace("Brodick", "Lamlash"))) == {}


def test_the_same_text_under_titles_that_differ_in_a_number_is_no_copy() -> None:
    pair = [Document("a", ORIGINAL, "Timetable 2024"), Document("b", ORIGINAL, "Timetable 2025")]
    assert find_duplicates(pair) == {}
    same = [Document("a", ORIGINAL, "Timetable 2024"), Document("b", ORIGINAL, "Timetable 2024 (copy)")]
    assert find_duplicates(same) == {1: 0}


def test_numbers_that_only_one_side_has_contradict_nothing() -> None:
    assert contradicts("It opened in 1931.", "It opened.") is False
    assert contradicts("It opened in 1931.", "It opened in 1932.") is True
    assert contradicts("It has seven rooms.", "It has nine rooms.") is True


def test_texts_of_signs_alone_are_compared_as_they_are() -> None:
    assert find_duplicates(documents("***", "***", "---")) == {1: 0}


def test_chinese_copies_are_found_by_their_characters() -> None:
    text = "香港特别行政区立法会根据条例组成任期四年"
    assert find_duplicates(documents(text, "转载:" + text)) == {1: 0}
