"""Trees as arrays against scikit-learn's own, and against a tree read by hand."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from gateway.context.forest import Forest


def test_a_tree_is_read_from_its_root_and_a_value_at_the_threshold_goes_left() -> None:
    forest = Forest(
        baseline=-1.0,
        columns=np.array([[0, 1, 1]], np.int16),
        thresholds=np.array([[0.5, 10.0, np.inf]]),
        leaves=np.array([[1.0, 2.0, 4.0, 8.0]]),
    )
    matrix = np.array([[0.5, 10.0], [0.5, 10.1], [0.6, 1e9], [-3.0, -1.0]])
    assert forest.log_odds(matrix).tolist() == [0.0, 1.0, 3.0, 0.0]


def test_trees_add_up() -> None:
    leaves = np.array([[-1.0, 1.0], [-0.5, 0.5]])
    forest = Forest(0.25, np.zeros((2, 1), np.int16), np.zeros((2, 1)), leaves)
    assert forest.log_odds(np.array([[1.0], [-1.0]])).tolist() == [1.75, -1.25]
    assert forest.log_odds(np.zeros((0, 1))).tolist() == []


@pytest.mark.parametrize(
    ("columns", "leaves"),
    [
        (np.zeros((1, 2), np.int16), np.zeros((1, 3))),
        (np.zeros((2, 1), np.int16), np.zeros((1, 2))),
        (np.full((1, 1), -1, np.int16), np.zeros((1, 2))),
    ],
)
def test_arrays_that_are_no_complete_trees_are_refused(
    columns: NDArray[np.int16], leaves: NDArray[np.float64]
) -> None:
    with pytest.raises(ValueError, match="trees"):
        Forest(0.0, columns, np.zeros(columns.shape), leaves)
