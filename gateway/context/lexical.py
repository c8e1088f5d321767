"""What question and chunks share in words."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gateway.context.words import content_words

_K1, _B = 1.2, 0.75


@dataclass(frozen=True, slots=True)
class TermMatches:
    """n texts against m terms, with document frequencies inside the request."""

    frequencies: NDArray[np.float64]
    """[n, m], how often each text has each term."""
    lengths: NDArray[np.float64]
    """[n] content words."""
    weights: NDArray[np.float64]
    """[m], each term's own weight times its idf, ln(1 + (n - holders + .5) / (holders + .5))."""

    def bm25(self) -> NDArray[np.float64]:
        """Return [n] Okapi BM25 (k1 1.2, b 0.75)."""
        relative = 1.0 - _B + _B * self.lengths / max(float(self.lengths.mean()), 1.0)
        saturated = self.frequencies * (_K1 + 1.0) / (self.frequencies + _K1 * relative[:, None])
        scores: NDArray[np.float64] = saturated @ self.weights
        return scores

    def coverage(self) -> NDArray[np.float64]:
        """Return [n] the share of the terms' weight that each text has; 0 where there are no terms."""
        covered: NDArray[np.float64] = (self.frequencies > 0.0) @ self.weights
        return covered / (self.weights.sum() or 1.0)

    def beyond(self, best: int) -> NDArray[np.float64]:
        """Return [n] the share of the weight that each text has and text ``best`` lacks."""
        lacking = self.weights * (self.frequencies[best] == 0.0)
        found: NDArray[np.float64] = (self.frequencies > 0.0) @ lacking
        return found / (self.weights.sum() or 1.0)


def match_terms(terms: Mapping[str, float], texts: Sequence[str]) -> TermMatches:
    """Count ``terms``, in lower case with their weights, in ``texts``."""
    counts = [Counter(content_words(text)) for text in texts]
    n = len(texts)
    frequencies = np.array([[count[term] for term in terms] for count in counts], float).reshape(
        n, len(terms)
    )
    holders = np.count_nonzero(frequencies, axis=0)
    idf = [math.log(1.0 + (n - held + 0.5) / (held + 0.5)) for held in holders]
    weights = np.array(list(terms.values()), float) * np.array(idf, float)
    return TermMatches(frequencies, np.array([count.total() for count in counts], float), weights)
