"""Top-n at every n, and between two of them, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from gateway.evaluation.measures import Labels
from gateway.evaluation.top_n import TopNCurves, at_equal_tokens, smallest_for_recall, trace_top_n


def labels(relevant: list[bool], tokens: list[int]) -> Labels:
    no = np.zeros(len(tokens), bool)
    return Labels(np.array(relevant), no, no, np.array(tokens), {}, False)


@pytest.fixture
def curves() -> TopNCurves:
    """Two requests, of 4 and of 2 chunks; the rankings are [2, 0, 3, 1] and [1, 0]."""
    first = labels([True, True, False, False], [10, 20, 30, 40])
    second = labels([False, True], [30, 10])
    return trace_top_n([(first, np.array([2, 0, 3, 1])), (second, np.array([1, 0]))])


def test_recall_and_tokens_are_followed_down_the_ranking(curves: TopNCurves) -> None:
    assert curves.recall.tolist() == [[0.0, 0.0, 0.5, 0.5, 1.0], [0.0, 1.0, 1.0, 1.0, 1.0]]
    assert curves.tokens.tolist() == [[0.0, 0.3, 0.4, 0.8, 1.0], [0.0, 0.25, 1.0, 1.0, 1.0]]


@pytest.mark.parametrize(
    ("recall", "n", "tokens"), [(0.0, 0, 0.0), (0.5, 1, 0.275), (0.6, 2, 0.7), (1.0, 4, 1.0)]
)
def test_the_smallest_n_that_reaches_a_recall(
    curves: TopNCurves, recall: float, n: int, tokens: float
) -> None:
    found = smallest_for_recall(curves, recall)
    assert found.n == n
    assert found.tokens.mean() == pytest.approx(tokens)
    assert found.recall.mean() >= recall


def test_at_equal_tokens_two_neighbours_are_mixed(curves: TopNCurves) -> None:
    """Means are 0, .275, .7, .9, 1 in tokens and 0, .5, .75, .75, 1 in recall."""
    found = at_equal_tokens(curves, 0.36)  # a fifth of the way from n = 1 to n = 2
    assert found.n == pytest.approx(1.2)
    assert found.tokens.mean() == pytest.approx(0.36)
    np.testing.assert_allclose(found.recall, [0.1, 1.0])
    assert at_equal_tokens(curves, 0.11).n == pytest.approx(0.4)
    assert at_equal_tokens(curves, 0.7).n == pytest.approx(2.0)
    assert at_equal_tokens(curves, 1.0).n == pytest.approx(4.0)


def test_a_request_without_relevant_chunks_has_no_recall_but_tokens() -> None:
    found = trace_top_n([(labels([False, False], [1, 3]), np.array([1, 0]))])
    assert np.isnan(found.recall).all()
    assert found.tokens.tolist() == [[0.0, 0.75, 1.0]]
