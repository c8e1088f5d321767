"""Scores, threshold and guard rails by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.thermo.blocks import GuardRails, block_scores, kept_blocks, threshold

FEW = GuardRails()


def scores(*values: float) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return np.array(values, np.float32)


def kept(mask: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> list[int]:
    return np.flatnonzero(mask).tolist()


def test_a_block_scores_the_surprisal_that_its_attention_falls_on() -> None:
    attention = np.zeros(40, np.float32)
    surprisals = np.zeros(40, np.float32)
    attention[[2, 15, 16, 39]] = 0.5, 0.25, 0.125, 1.0
    surprisals[[2, 15, 16, 38, 39]] = 2.0, 4.0, 8.0, 100.0, 3.0
    # Tokens 0 to 15, 16 to 31, and the eight that the last block has so far.
    assert block_scores(attention, surprisals).tolist() == [0.5 * 2 + 0.25 * 4, 0.125 * 8, 3.0]


def test_the_threshold_rises_as_entropy_falls_and_is_nothing_from_the_reference_on() -> None:
    assert [threshold(2.0, e, 4.0) for e in (0.0, 1.0, 3.0, 4.0, 9.0)] == [2.0, 1.5, 0.5, 0.0, 0.0]


def test_what_scores_below_the_threshold_is_dropped_in_units_of_the_mean() -> None:
    # Ten blocks, 160 tokens: 0 and 6 to 9 (the last 64 tokens) are guarded; 1 to 5 have the mean 2.
    given_scores = scores(0, 1, 5, 2, 0, 2, 0, 0, 0, 0)
    assert kept(kept_blocks(given_scores, 1.0, 160, FEW)) == [0, 2, 3, 5, 6, 7, 8, 9]
    assert kept(kept_blocks(given_scores, 1.01, 160, FEW)) == [0, 2, 6, 7, 8, 9]
    assert kept(kept_blocks(given_scores * 1000, 1.01, 160, FEW)) == [0, 2, 6, 7, 8, 9]
    assert kept(kept_blocks(given_scores, 0.0, 160, FEW)) == list(range(10))


def test_the_last_64_tokens_stay_also_where_they_begin_inside_a_block() -> None:
    # 167 tokens: the last 64 begin at 103, in block 6; block 10 is being written.
    assert kept(kept_blocks(scores(*([1.0] * 11)), 9.0, 167, FEW)) == [0, 6, 7, 8, 9, 10]


def test_blocks_of_the_prefix_cache_stay() -> None:
    rails = GuardRails(num_shared_tokens=48)
    assert kept(kept_blocks(scores(*([1.0] * 10)), 9.0, 160, rails)) == [0, 1, 2, 6, 7, 8, 9]


def test_b_min_wins_and_takes_the_best_of_what_would_go_the_later_of_equals() -> None:
    given_scores = scores(0, 3, 1, 4, 3, 0, 0, 0, 0, 0)
    assert kept(kept_blocks(given_scores, 9.0, 160, GuardRails(min_blocks=7))) == [0, 3, 4, 6, 7, 8, 9]
    assert kept(kept_blocks(given_scores, 9.0, 160, GuardRails(min_blocks=5))) == [0, 6, 7, 8, 9]
    assert kept(kept_blocks(given_scores, 9.0, 160, GuardRails(min_blocks=1000))) == list(range(10))


def test_a_text_of_64_tokens_is_kept_whole() -> None:
    assert kept_blocks(scores(1, 0, 0, 0), 1000.0, 64, FEW).all()


@given(
    st.lists(st.floats(0.0, 100.0, width=32), min_size=1, max_size=80),
    st.tuples(st.floats(0.0, 50.0), st.floats(0.0, 50.0)),
    st.integers(0, 400),
    st.integers(1, 90),
)
def test_guarded_blocks_never_go_and_a_higher_threshold_never_keeps_more(
    values: list[float], thetas: tuple[float, float], num_shared: int, min_blocks: int
) -> None:
    num_tokens = 16 * len(values) - 5
    rails = GuardRails(num_shared, min_blocks)
    low, high = (kept_blocks(scores(*values), theta, num_tokens, rails) for theta in sorted(thetas))
    assert high[0]
    assert high[-4:].all()
    assert high[: -(-min(num_shared, num_tokens) // 16)].all()
    assert high.sum() >= min(min_blocks, len(values))
    assert not (high & ~low).any()


@pytest.mark.parametrize("entropy_nats", [0.0, 1.0, 2.5])
def test_scores_that_are_all_zero_keep_everything(entropy_nats: float) -> None:
    theta = threshold(3.0, entropy_nats, 4.0)
    assert kept_blocks(np.zeros(12, np.float32), theta, 192, FEW).all()
