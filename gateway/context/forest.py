"""Gradient-boosted trees as arrays: what a trained selector consists of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class Forest:
    """t complete binary trees of depth d, their sum being log-odds (Friedman 2001).

    Node i has the children 2i + 1, where the column is at or below the node's threshold, and 2i + 2.
    """

    baseline: float
    """Log-odds before any tree."""
    columns: NDArray[np.int16]
    """[t, 2^d - 1], which column each inner node looks at."""
    thresholds: NDArray[np.float64]
    """[t, 2^d - 1]; infinite where a shallower leaf was filled up to the depth."""
    leaves: NDArray[np.float64]
    """[t, 2^d] log-odds that each leaf adds."""

    def __post_init__(self) -> None:
        """Raise ValueError where the arrays do not fit together."""
        num_trees, num_leaves = self.leaves.shape
        if self.columns.shape != (num_trees, num_leaves - 1) or self.thresholds.shape != self.columns.shape:
            raise ValueError("the trees' arrays do not fit together")
        if num_leaves & (num_leaves - 1) or self.columns.min(initial=0) < 0:
            raise ValueError("the trees are not complete")

    def log_odds(self, matrix: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return [n] for ``matrix`` [n, columns]."""
        trees = np.arange(len(self.leaves))
        rows = np.arange(len(matrix))[:, None]
        node = np.zeros((len(matrix), len(trees)), np.int64)
        for _ in range(self.leaves.shape[1].bit_length() - 1):
            goes_right = matrix[rows, self.columns[trees, node]] > self.thresholds[trees, node]
            node = 2 * node + 1 + goes_right
        total: NDArray[np.float64] = self.leaves[trees, node - self.columns.shape[1]].sum(axis=1)
        return self.baseline + total
