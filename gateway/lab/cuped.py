"""Regression adjustment by the period before: Deng, Xu, Kohavi and Walker (2013), "CUPED".

A unit's value y becomes y - theta · (x - mean of x), x the unit's mean of the same metric before it was
exposed. x cannot depend on the arm, so the difference of the arms' means keeps its expectation for any
theta; its variance is smallest at theta = cov(x, y) / var(x), where it falls by the share rho² (of the units
that have x). Covariance and variance are taken inside the arms and pooled: the effect does not enter.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from gateway.lab.findings import Cuped

MIN_UNITS_BEFORE = 50
"""Units with a period before, in all arms together; below that nothing is adjusted."""

Values: TypeAlias = NDArray[np.float64]


def adjusted(values: Values, before: Values, arms: NDArray[np.int64]) -> tuple[Values, Cuped] | None:
    """Return the adjusted values and what it did; None where that helps nothing, or too few have x.

    All three have one element a unit; NaN in ``before`` is a unit without one, which is left as it is.
    """
    known = ~np.isnan(before)
    if known.sum() < MIN_UNITS_BEFORE:
        return None
    x, y = (_centred(each[known], arms[known]) for each in (before, values))
    spread = float((x * x).sum())
    if spread <= 1e-12 * float((before[known] ** 2).sum()):
        return None
    theta = float((x * y).sum()) / spread
    result = values.copy()
    result[known] -= theta * (before[known] - before[known].mean())
    raw, rest = (float((_centred(each, arms) ** 2).sum()) for each in (values, result))
    if rest >= raw:
        return None
    return result, Cuped(theta, int(known.sum()), 1.0 - rest / raw)


def _centred(values: Values, arms: NDArray[np.int64]) -> Values:
    """Return the values less their arm's mean."""
    means = np.bincount(arms, values) / np.maximum(1, np.bincount(arms))
    result: Values = values - means[arms]
    return result
