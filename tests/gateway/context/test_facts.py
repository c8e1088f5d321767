from __future__ import annotations

import pytest

from gateway.context.facts import differ, read_words


@pytest.mark.parametrize(
    ("here", "there"),
    [
        ("1,000", "1000"),
        ("seven", "7"),
        ("1st", "first"),
        ("twenty five", "25"),
        ("$1.65 billion", "$1,650 million"),
        ("1.6 million", "1,604,000"),
        ("27 October 2017", "October 27, 2017"),
        ("2017-10-27", "27 October 2017"),
        ("Oct. 27", "October 27"),
        ("in 2017", "on May 3, 2017"),
        ("U.S.", "United States"),
        ("NASA", "National Aeronautics and Space Administration"),
        ("J. Penhallow", "Jenifer Penhallow"),
        ("Prof. Penhallow", "Professor Penhallow"),
        ("Russian", "Russia"),
        ("Pogačar’s", "Pogacar's"),
        ("President Arden", "Jacinda Arden"),
        ("5 km", "3 miles"),
        ("19:10", "7:10 p.m."),
        ("7 pm", "19:00"),
        ("½", "¾ of it"),
        ("the harbour", "a quay"),
    ],
)
def test_what_is_the_same_however_it_is_written_does_not_differ(here: str, there: str) -> None:
    assert differ(read_words(here), read_words(there)) is False
    assert differ(read_words(there), read_words(here)) is False


@pytest.mark.parametrize(
    ("here", "there"),
    [
        ("1931", "1932"),
        ("1.65 billion", "10.65 billion"),
        ("seven", "nine"),
        ("07:10", "08:25"),
        ("07:10", "7:10 p.m."),
        ("October 27, 2017", "October 2, 2016"),
        ("27 October", "27 November"),
        ("May 5", "June 5"),
        ("Brodick", "Lamlash"),
        ("Ida Penhallow", "Walter Trewin"),
        ("is", "isn't"),
        ("", "not"),
    ],
)
def test_another_number_another_name_and_a_denial_differ(here: str, there: str) -> None:
    assert differ(read_words(here), read_words(there)) is True
    assert differ(read_words(there), read_words(here)) is True


def test_words_are_found_where_they_stand() -> None:
    text = "On the 2nd of May 1931 Ida's boat sank."
    found = {word.key: (text[word.start : word.end], word.kind) for word in read_words(text)}
    assert found["2"] == ("2", "number")
    assert found["month 5"] == ("May", "month")
    assert found["ida"] == ("Ida's", "name")
    assert "nd" not in found
    assert "month 5" not in {word.key for word in read_words("May I come in?")}
