from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from worker.engine.speculation.lookup import LONGEST_GRAM, LookupIndex, Match


def test_the_latest_place_of_the_longest_gram_is_found() -> None:
    #       0  1  2  3  4  5  6  7  8  9
    text = [7, 1, 2, 3, 9, 1, 2, 4, 1, 2]
    # "1 2" was read before at 1 and at 5, and went on with 3 and then with 4; "4 1 2" is new.
    assert LookupIndex(min_match=1).find(text) == Match(follows=7, num_tokens=2, num_seen=2, num_alike=1)


def test_a_match_is_measured_beyond_the_longest_gram() -> None:
    text = [1, 2, 3, 4, 5, 6, 0, 1, 2, 3, 4, 5, 6]
    assert LookupIndex(min_match=2).find(text) == Match(follows=6, num_tokens=6)


def test_matches_below_the_shortest_allowed_are_not_made() -> None:
    text = [1, 2, 3, 4, 3]
    assert LookupIndex(min_match=1).find(text) == Match(follows=3, num_tokens=1)
    assert LookupIndex(min_match=2).find(text) is None


def test_the_end_of_a_text_does_not_find_itself() -> None:
    index = LookupIndex(min_match=1)
    assert index.find([5]) is None
    assert index.find([5, 6]) is None
    assert index.find([5, 6, 6]) == Match(follows=2, num_tokens=1)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=60), st.integers(1, LONGEST_GRAM))
def test_a_text_that_grows_finds_what_a_search_through_all_of_it_finds(text: list[int], least: int) -> None:
    index = LookupIndex(least)
    for end in range(1, len(text) + 1):
        grown = text[:end]
        match = index.find(grown)
        places: list[int] = []
        for size in range(LONGEST_GRAM, least - 1, -1):
            tail = grown[-size:]
            places = [p for p in range(size, end) if len(tail) == size and grown[p - size : p] == tail][-8:]
            if places:
                break
        assert (match.follows if match else None) == (places[-1] if places else None)
        if match:
            assert match.num_seen == len(places)
            assert match.num_alike == [grown[p] for p in places].count(grown[match.follows])
