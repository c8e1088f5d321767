"""Which texts count as an answer, by hand."""

from __future__ import annotations

import pytest

from gateway.evaluation.scoring import is_answered, normalised


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("It was Wilhelm Conrad Röntgen.", "Wilhelm Conrad Röntgen"),
        ("it was wilhelm  conrad\nröntgen", "Wilhelm Conrad Röntgen"),
        ("She sang in Beatles songs", "the Beatles"),
        ("They moved to the Hague.", "Hague"),
        ("a play by the name of The Tempest", "A Tempest"),
        ("No, he did not.", "no"),
        ("born in 1889", "1889"),
        ("in (1889)", "1889"),
        ("It costs $5.", "$5"),
        ("他出生于1889年", "1889"),
        ("答案是北京市。", "北京"),
        ("Ｎｏｂｅｌ prize", "Nobel"),
    ],
)
def test_a_text_with_the_answer_in_it_is_right(text: str, answer: str) -> None:
    assert is_answered(text, ["something else", answer])


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("Nobody knows.", "no"),
        ("born in 1889", "18"),
        ("Anaheim", "Ana"),
        ("Conrad Wilhelm Röntgen", "Wilhelm Conrad"),
        ("", "x"),
        ("anything", ""),
        ("anything", "the"),
        ("a c", "a.c"),
    ],
)
def test_a_part_of_a_word_or_an_empty_answer_is_not(text: str, answer: str) -> None:
    assert not is_answered(text, [answer])


def test_without_answers_nothing_is_right() -> None:
    assert not is_answered("anything", [])


def test_articles_leave_and_words_that_begin_like_one_stay() -> None:
    assert normalised(" The  anthem of\ta theatre,\nAn end ") == "anthem of theatre, end"
