"""Names, holders and the order in which blocks make room."""

from __future__ import annotations

import pytest

from worker.engine.prefix import BLOCK_TOKENS, PrefixCache, extend_digests


def digests(*token_ids: int) -> list[bytes]:
    """Of a text in which each of these ids fills one block."""
    text = [id_ for id_ in token_ids for _ in range(BLOCK_TOKENS)]
    return extend_digests([], text, len(text))


def placed(cache: PrefixCache, names: list[bytes]) -> list[int]:
    found = [cache.place(name) for name in names]
    return [each[0] for each in found if each is not None]


def test_a_block_is_named_by_everything_up_to_its_end() -> None:
    assert digests(1, 2)[0] == digests(1, 3)[0]
    assert digests(1, 2)[1] != digests(3, 2)[1]
    assert len(set(digests(1, 1, 1))) == 3
    assert extend_digests([], [7] * (BLOCK_TOKENS - 1), BLOCK_TOKENS - 1) == []


def test_digests_go_on_from_those_that_are_known() -> None:
    known = digests(1, 2)
    text = [1] * BLOCK_TOKENS + [2] * BLOCK_TOKENS + [3] * BLOCK_TOKENS
    assert extend_digests(list(known), text, len(text)) == digests(1, 2, 3)
    assert extend_digests(digests(1, 2, 3), text, 2 * BLOCK_TOKENS) == known


def test_the_longest_known_beginning_is_found() -> None:
    cache = PrefixCache(8)
    blocks = placed(cache, digests(1, 2, 3))
    assert cache.find(digests(1, 2, 9)) == blocks[:2]
    assert cache.find(digests(9, 2, 3)) == []
    assert (cache.count(digests(1, 2, 9)), cache.count(digests(1, 2, 3))) == (2, 3)


def test_the_same_beginning_is_kept_once() -> None:
    cache = PrefixCache(8)
    first = placed(cache, digests(1, 2))
    assert [cache.place(name) for name in digests(1, 2)] == [(first[0], False), (first[1], False)]
    assert cache.num_used == 2


def test_what_is_held_stays_and_the_end_of_the_oldest_text_goes_first() -> None:
    cache = PrefixCache(4)
    old, held = placed(cache, digests(1, 2)), placed(cache, digests(3, 4))
    cache.drop(old)
    assert (cache.num_used, cache.num_held) == (4, 2)
    assert placed(cache, digests(5)) == [old[1]]
    assert cache.count(digests(1, 2)) == 1, "its beginning is still known"
    assert placed(cache, digests(6)) == [old[0]]
    assert cache.place(digests(7)[0]) is None, "all others are held"
    assert cache.count(digests(3, 4)) == 2
    cache.drop(held)
    assert placed(cache, digests(7)) == [held[1]]


def test_a_text_that_was_used_again_is_younger() -> None:
    cache = PrefixCache(2)
    first, second = placed(cache, digests(1)), placed(cache, digests(2))
    cache.drop(first)
    cache.drop(second)
    cache.drop(cache.find(digests(1)))
    assert placed(cache, digests(3)) == second


def test_a_block_with_two_holders_stays_until_both_have_gone() -> None:
    cache = PrefixCache(1)
    blocks = placed(cache, digests(1))
    assert cache.find(digests(1)) == blocks
    cache.drop(blocks)
    assert cache.place(digests(2)[0]) is None
    cache.drop(blocks)
    assert cache.place(digests(2)[0]) == (blocks[0], True)


def test_a_cache_without_blocks_keeps_nothing() -> None:
    cache = PrefixCache(0)
    assert cache.place(digests(1)[0]) is None
    assert cache.find(digests(1)) == []


def test_what_nobody_holds_cannot_be_dropped() -> None:
    cache = PrefixCache(1)
    with pytest.raises(KeyError):
        cache.drop([0])
