from __future__ import annotations

import time

from gateway.context.alignment import Difference, differing_facts, write_down

FERRY = (
    "The harbour ferry leaves Ness at 07:10 on weekdays. It takes forty minutes to Brodick. "
    "Bicycles travel free of charge. The boat was built on 27 October 1987 in Leith."
)


def between(text: str, other: str) -> list[Difference]:
    return differing_facts(write_down(text), write_down(other))


def test_the_spans_are_whole_as_they_are_written() -> None:
    (found,) = between(FERRY, FERRY.replace("27 October 1987", "2 October 1986"))
    assert found.spans == ("27 October 1987", "2 October 1986")
    assert found.context.endswith("built on")


def test_every_place_that_differs_is_found_in_order() -> None:
    other = FERRY.replace("07:10", "08:25").replace("Brodick", "Lamlash")
    assert [found.spans for found in between(FERRY, other)] == [("07:10", "08:25"), ("Brodick", "Lamlash")]


def test_a_denial_is_shown_with_what_it_denies() -> None:
    (found,) = between(FERRY, FERRY.replace("was built", "was not built"))
    assert found.spans == ("was built", "was not built")


def test_what_one_side_alone_says_is_no_difference() -> None:
    assert between(FERRY, FERRY + " Dogs pay 3 pounds.") == []
    assert between(FERRY, FERRY.replace("Bicycles travel free of charge. ", "")) == []
    assert between(FERRY, "Jul 11, 2010 ... " + FERRY) == []
    assert between("Jul 12, 2010 ... " + FERRY, "Dec 1, 2011 ... " + FERRY) == []


def test_a_long_stretch_of_other_text_is_not_one_fact() -> None:
    other = "In 1999 Ada Trewin painted the hull of the old boat red and green, and then sold it to Jura."
    assert between(FERRY, FERRY.replace("It takes forty minutes to Brodick.", other)) == []


def test_texts_without_common_words_have_no_place_in_common() -> None:
    assert between("It opened in 1931.", "Soup needs 3 leeks, cream and butter.") == []
    assert between("", FERRY) == between("***", "---") == []


def test_long_texts_are_laid_side_by_side_quickly() -> None:
    """This thread's processor time, widely bounded: by the square of the length it would be a minute."""
    long = " ".join(f"Word{number} is said {number * 7} times." for number in range(2_000))
    started = time.thread_time()
    assert between(long, long.replace("Word20 ", "Vessel20 ")) != []
    assert time.thread_time() - started < 2.0
