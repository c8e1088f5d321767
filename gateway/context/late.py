"""Late interaction: question tokens against chunk tokens (MaxSim of ColBERT, Khattab and Zaharia 2020)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gateway.context.asked import Asked
from gateway.context.encoding import Encoding


@dataclass(frozen=True, slots=True)
class TokenMatches:
    """n chunks against the question's m tokens."""

    best: NDArray[np.float64]
    """[n, m], the highest cosine of each question token with a token of the chunk; 0 where it has none."""
    weights: NDArray[np.float64]
    """[m], of sum 1 (or 0): each token's own weight times its idf, ln(1 + n / (1 + holders))."""

    def similarity(self) -> NDArray[np.float64]:
        """Return [n] MaxSim: the weighted mean of the best cosines; what all chunks have weighs least."""
        scores: NDArray[np.float64] = self.best @ self.weights
        return scores

    def beyond(self, best: int) -> NDArray[np.float64]:
        """Return [n] by how much each chunk would raise the similarity of chunk ``best``."""
        gains: NDArray[np.float64] = np.maximum(self.best - self.best[best], 0.0) @ self.weights
        return gains


def match_tokens(asked: Asked, encodings: Sequence[Encoding]) -> TokenMatches:
    """Compare the question's tokens with those of ``encodings``."""
    import torch

    n, tokens = len(encodings), asked.encoding.tokens
    best = np.zeros((n, len(tokens)))
    filled = [index for index, encoding in enumerate(encodings) if len(encoding.tokens)]
    if not filled or not len(tokens):
        return TokenMatches(best, np.zeros(len(tokens)))
    holders = Counter(token for encoding in encodings for token in set(encoding.token_ids.tolist()))
    idf = [math.log(1.0 + n / (1.0 + holders[token])) for token in asked.encoding.token_ids.tolist()]
    weights = asked.token_weights * np.array(idf)
    there = torch.from_numpy(np.concatenate([encodings[index].tokens for index in filled])).float()
    cosines = (there @ torch.from_numpy(tokens).float().T).numpy()
    lengths = [len(encodings[index].tokens) for index in filled]
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    best[filled] = np.maximum.reduceat(cosines, starts, axis=0)
    return TokenMatches(best, weights / (weights.sum() or 1.0))
