"""The incumbents against numpy, on vectors that are seen through at a glance."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from sklearn.cluster import KMeans

from gateway.evaluation.incumbents import MMR_LAMBDA, MMR_SIZE, Retrieved, incumbents


def retrieved(degrees: Sequence[float]) -> Retrieved:
    """Return chunks in the plane, turned so far from the question."""
    angles = np.radians(degrees)
    vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    texts = tuple(f"chunk {index}" for index in range(len(degrees)))
    return Retrieved("question", texts, np.array([1.0, 0.0], np.float32), vectors)


def at_random(num_chunks: int, seed: int) -> Retrieved:
    rows = np.random.default_rng(seed).normal(size=(num_chunks + 1, 12)).astype(np.float32)
    rows[1:] += 0.6 * rows[0]
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return Retrieved("question", tuple(f"chunk {n}" for n in range(num_chunks)), rows[0], rows[1:])


def chosen(method: str, given: Retrieved) -> set[int]:
    return set(np.flatnonzero(incumbents()[method].choose(given)).tolist())


def test_they_are_the_ones_that_are_promised() -> None:
    tops = ["top_3", "top_5", "top_8", "top_10"]
    filters = ["embeddings_filter", "embeddings_filter_0.3", "embeddings_clustering_filter"]
    assert list(incumbents()) == ["all", *tops, "similarity_0.3", "mmr_8", *filters]


def test_top_n_takes_the_nearest_and_of_equals_the_earlier() -> None:
    given = retrieved([80, 10, 30, 30, 30, 5, 90])
    assert chosen("top_3", given) == {5, 1, 2}
    assert chosen("top_5", given) == {5, 1, 2, 3, 4}
    assert chosen("top_10", given) == set(range(7))
    assert chosen("all", given) == set(range(7))


def test_a_similarity_is_a_cosine() -> None:
    given = retrieved([0, 72, 73, -72, 120])  # cos 72.54 degrees = .3
    assert chosen("similarity_0.3", given) == {0, 1, 3}


@pytest.mark.parametrize("seed", range(3))
def test_langchains_filter_with_a_threshold_is_that_threshold(seed: int) -> None:
    given = at_random(30, seed)
    expected = {index for index, vector in enumerate(given.vectors) if vector @ given.question_vector > 0.3}
    assert 0 < len(expected) < 30
    assert chosen("embeddings_filter_0.3", given) == expected


def test_langchains_filter_as_it_comes_is_top_20() -> None:
    assert chosen("embeddings_filter", at_random(12, 1)) == set(range(12))
    given = at_random(30, 1)
    expected = sorted(range(30), key=lambda index: -float(given.vectors[index] @ given.question_vector))[:20]
    assert chosen("embeddings_filter", given) == set(expected)


def test_mmr_takes_what_is_near_the_question_and_far_from_what_it_has() -> None:
    """By hand: 10 first, then -20 (.5 cos 20 - .5 cos 30 = .037) before 12 (.489 - .5 = -.011)."""
    given = retrieved([12, 10, -20, 14, 11, 13, 15, 16, 9, 90])
    order: list[int] = []
    while len(order) < MMR_SIZE:
        rest = [index for index in range(10) if index not in order]
        redundancy = [
            max([float(given.vectors[i] @ given.vectors[j]) for j in order], default=0.0) for i in rest
        ]
        scores = [
            MMR_LAMBDA * float(given.similarity[i]) - (1 - MMR_LAMBDA) * again
            for i, again in zip(rest, redundancy, strict=True)
        ]
        order.append(rest[int(np.argmax(scores))])
    assert order[:2] == [8, 2]
    assert chosen("mmr_8", given) == set(order)


def test_langchains_clustering_keeps_the_chunk_nearest_to_each_of_five_centres() -> None:
    given = at_random(20, 4)
    centres = KMeans(n_clusters=5, random_state=42).fit(given.vectors.tolist()).cluster_centers_
    nearest = {int(np.linalg.norm(given.vectors - centre, axis=1).argmin()) for centre in centres}
    assert len(nearest) == 5
    assert chosen("embeddings_clustering_filter", given) == nearest


def test_too_few_chunks_for_the_clusters_stay() -> None:
    assert chosen("embeddings_clustering_filter", retrieved([0, 40, 80, 120])) == {0, 1, 2, 3}


def test_copies_are_told_apart_by_their_place() -> None:
    vectors = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]], np.float32)
    given = Retrieved("question", ("same", "other", "same"), vectors[0], vectors)
    assert chosen("embeddings_filter_0.3", given) == {0, 2}
