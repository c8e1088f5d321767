"""What the kept chunks are about: clusters around the strongest chunks, and the words that name the theme."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence

import faiss
import numpy as np
from numpy.typing import NDArray

from gateway.context.encoding import Vectors
from gateway.context.words import STOP_WORDS, cased_words, is_number

SAME_THEME = 0.45
"""Cosine from which on two chunks are of one cluster."""

_MAX_COUNT = 3
_QUESTION_FACTOR = 2.0


def find_clusters(vectors: Vectors, strength: NDArray[np.float64]) -> list[int]:
    """Return the cluster of each of n chunks, given unit ``vectors`` [n, d] and ``strength`` [n].

    The strongest chunk is a centre and takes all that are near it, then the strongest of the rest, and so on.
    So cluster 0 is the theme's, no number of clusters has to be guessed, and equal chunks are together.
    """

    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(np.ascontiguousarray(vectors))
    limits, _, near = index.range_search(np.ascontiguousarray(vectors), SAME_THEME)
    clusters = [-1] * len(vectors)
    num_clusters = 0
    for centre in np.argsort(-strength, kind="stable").tolist():
        if clusters[centre] >= 0:
            continue
        for member in {centre, *near[limits[centre] : limits[centre + 1]].tolist()}:
            if clusters[member] < 0:
                clusters[member] = num_clusters
        num_clusters += 1
    return clusters


def theme_words(
    question: str, kept: Sequence[str], scores: Sequence[float], dropped: Sequence[str], limit: int
) -> tuple[str, ...]:
    """Return up to ``limit`` words that ``kept`` texts have more than ``dropped`` ones, as they are written.

    A word weighs its count in each kept text (3 at most) times the text's score, times how rare it is among
    the dropped, twice where the question has it.
    """
    asked = {word.lower() for word in cased_words(question)}
    weights: dict[str, float] = defaultdict(float)
    written: dict[str, Counter[str]] = defaultdict(Counter)
    for text, score in zip(kept, scores, strict=True):
        counts = Counter(word for word in cased_words(text) if _names_something(word))
        for word, count in counts.items():
            written[word.lower()][word] += count
            weights[word.lower()] += score * min(count, _MAX_COUNT)
    holders = Counter(word for text in dropped for word in {each.lower() for each in cased_words(text)})
    for word in weights:
        weights[word] *= 1.0 + math.log((1 + len(dropped)) / (1 + holders[word]))
        weights[word] *= _QUESTION_FACTOR if word in asked else 1.0
    best = sorted(weights, key=lambda word: (-weights[word], word))[:limit]
    return tuple(written[word].most_common(1)[0][0] for word in best)


def _names_something(word: str) -> bool:
    return len(word) >= 3 and not is_number(word) and word.lower() not in STOP_WORDS
