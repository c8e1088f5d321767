"""Predicted against observed, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from gateway.evaluation.calibration import calibrate


def test_chunks_fall_into_tenths_of_probability() -> None:
    probability = np.array([0.0, 0.05, 0.3, 0.34, 0.38, 1.0])
    is_relevant = np.array([False, True, False, False, True, True])
    found = calibrate(probability, is_relevant)
    filled = {
        (each.low, each.num_chunks): (each.predicted, each.observed) for each in found.bins if each.num_chunks
    }
    assert filled == {
        (0.0, 2): (pytest.approx(0.025), 0.5),
        (0.3, 3): (pytest.approx(0.34), pytest.approx(1 / 3)),
        (0.9, 1): (1.0, 1.0),
    }
    assert len(found.bins) == 10
    assert found.bins[5].predicted is None
    assert found.expected_error == pytest.approx((2 * 0.475 + 3 * (0.34 - 1 / 3)) / 6)
    squares = [0.0, 0.95**2, 0.09, 0.34**2, 0.62**2, 0.0]
    assert found.brier == pytest.approx(sum(squares) / 6)
