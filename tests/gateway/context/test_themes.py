from __future__ import annotations

import numpy as np

from gateway.context.encoding import unit
from gateway.context.themes import find_clusters, theme_words


def test_clusters_form_around_the_strongest_chunks() -> None:
    vectors = unit(np.array([[0.1, 1.0], [1.0, 0.0], [0.9, 0.1], [0.0, 1.0]], np.float32))
    assert find_clusters(vectors, np.array([0.1, 0.2, 0.9, 0.3])) == [1, 0, 0, 1]


def test_equal_chunks_are_one_cluster_and_one_chunk_is_too() -> None:
    same = np.tile(unit(np.ones((1, 4), np.float32)), (5, 1))
    assert find_clusters(same, np.ones(5)) == [0] * 5
    assert find_clusters(same[:1], np.ones(1)) == [0]


def test_the_theme_is_what_kept_texts_have_and_dropped_ones_lack() -> None:
    words = theme_words(
        "Which metal coats the mirror?",
        ["Silver coats the mirror of the Amberley telescope.", "The Amberley mirror is large."],
        [0.9, 0.6],
        ["The soup is large.", "A large tax form."],
        4,
    )
    assert words[0] == "mirror"  # twice, and in the question
    assert "Amberley" in words
    assert "large" not in words
    assert len(words) == 4
