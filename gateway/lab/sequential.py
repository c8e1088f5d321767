"""Intervals that hold at all times at once, so that one may look whenever one likes and stop when one likes.

The method is the asymptotic confidence sequence of Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas,
"Time-uniform central limit theory and asymptotic confidence sequences" (2021; Annals of Statistics 2024):
with n units, standard error e and the normal mixture boundary of Robbins (1970), the true value lies in

    estimate ± e · c,    c = sqrt((1 + 1/y) · ln((y + 1) / alpha²)),    y = n · rho²,

for all n at once with probability 1 - alpha, as the n of the first look grows. A difference of two arms'
means has an influence function of variance n · (s₁²/n₁ + s₀²/n₀), so e² = s₁²/n₁ + s₀²/n₀ and n = n₁ + n₀.

rho sets for which n the boundary is narrowest, not whether it holds. The minimum over y is where
y = ln((y + 1) / alpha²), thus y = -W₋₁(-alpha²/e) - 1 (Howard, Ramdas, McAuliffe and Sekhon 2021), and
rho² = y / TUNED_UNITS.

The theorem says nothing of small n. Three precautions, all of which vanish as n grows: nothing is said below
MIN_UNITS units an arm; c is taken from Student's distribution at the tail probability that it has in the
normal one, with the degrees of freedom of Welch (1947); and it is widened by |g| · (2c² + 1) / 6, the
first term of the Edgeworth expansion of a studentised estimate of skewness g (Hall 1992), on both sides.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import special  # type: ignore[import-untyped]

from gateway.lab.intervals import Interval

ALPHA = 0.05
TUNED_UNITS = 500
"""Units of both arms together for which the intervals are narrowest."""
MIN_UNITS = 20
"""Of an arm, before anything is said of it."""

Floats: TypeAlias = float | NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Sample:
    """An arm's units, one value a unit. ``variance`` (divisor n - 1) and ``skewness`` are those of a unit."""

    num_units: int
    mean: float
    variance: float
    skewness: float = 0.0

    @classmethod
    def of(cls, values: Sequence[float] | NDArray[np.float64], *, is_share: bool = False) -> Sample:
        """Return the sample of ``values``. ``is_share``: they lie in [0, 1], such as shares of events.

        Shares that are all alike get the variance that events would have with one more unit that has the
        event and one that has not (Laplace's rule of succession): what has not happened yet may happen.
        """
        units = np.asarray(values, float)
        num_units = len(units)
        if num_units < 2:
            return cls(num_units, float(units.mean()) if num_units else math.nan, math.nan)
        mean = float(units.mean())
        if units.min() == units.max():
            share = (mean * num_units + 1.0) / (num_units + 2.0)
            return cls(num_units, mean, share * (1.0 - share) if is_share else 0.0)
        variance = float(units.var(ddof=1))
        return cls(num_units, mean, variance, float(((units - mean) ** 3).mean() / variance**1.5))


@dataclass(frozen=True, slots=True)
class Precision:
    """What is known of an estimate's error; all fields may be arrays of one shape."""

    standard_error: Floats
    num_units: Floats
    degrees: Floats
    """Degrees of freedom of the standard error."""
    skewness: Floats
    """Of the estimate itself: it falls as 1 / sqrt(num_units)."""


def mean_interval(sample: Sample, alpha: float = ALPHA) -> Interval:
    """Return the mean with its interval at level 1 - alpha; the whole line where nothing can be said."""
    if sample.num_units < MIN_UNITS or not sample.variance > 0.0:
        return Interval(sample.mean, -math.inf, math.inf)
    size = sample.num_units
    error, skewness = math.sqrt(sample.variance / size), sample.skewness / math.sqrt(size)
    margin = float(margin_of(Precision(error, size, size - 1, skewness), alpha))
    return Interval(sample.mean, sample.mean - margin, sample.mean + margin)


def difference_interval(ours: Sample, theirs: Sample, alpha: float = ALPHA) -> Interval:
    """Return ours - theirs with its interval at level 1 - alpha; the whole line where nothing can be said.

    Nothing can be said below MIN_UNITS in either arm, or where no unit differs from another. An arm whose
    units are all alike is taken to vary as the other does.
    """
    difference = ours.mean - theirs.mean
    if min(ours.num_units, theirs.num_units) < MIN_UNITS or not max(ours.variance, theirs.variance) > 0.0:
        return Interval(difference, -math.inf, math.inf)
    margin = float(margin_of(difference_precision(ours, theirs), alpha))
    return Interval(difference, difference - margin, difference + margin)


def difference_precision(ours: Sample, theirs: Sample) -> Precision:
    """Return the precision of the difference of two samples that have two units each and some variance."""
    spread = max(ours.variance, theirs.variance)
    return precision_of(
        ours.variance or spread,
        ours.num_units,
        theirs.variance or spread,
        theirs.num_units,
        skewness=max(abs(ours.skewness), abs(theirs.skewness)),
    )


def precision_of(
    our_variance: Floats, our_units: Floats, their_variance: Floats, their_units: Floats, *, skewness: Floats
) -> Precision:
    """Return the precision of a difference of means; ``skewness`` is the larger of the arms', of one unit.

    Both arms are taken to have it: the smaller one may not have seen its rare large values yet, and arms of
    one size and shape cancel each other's.
    """
    ours, theirs = our_variance / our_units, their_variance / their_units
    square = ours + theirs
    degrees = square**2 / (ours**2 / (our_units - 1) + theirs**2 / (their_units - 1))
    third = skewness * (ours**1.5 / our_units**0.5 - theirs**1.5 / their_units**0.5)
    return Precision(square**0.5, our_units + their_units, degrees, third / square**1.5)


def margin_of(precision: Precision, alpha: float = ALPHA) -> Floats:
    """Return half the width of the interval."""
    tail = special.ndtr(-boundary(precision.num_units, alpha))
    factor = -special.stdtrit(precision.degrees, tail)
    factor = factor + np.abs(precision.skewness) * (2.0 * factor**2 + 1.0) / 6.0
    result: Floats = precision.standard_error * factor
    return result


def boundary(num_units: Floats, alpha: float = ALPHA) -> Floats:
    """Return c: how many standard errors an estimate from ``num_units`` may be off, ever."""
    time = np.asarray(num_units, float) * (tightest_time(alpha) / TUNED_UNITS)
    result: Floats = np.sqrt((1.0 + 1.0 / time) * (np.log1p(time) - 2.0 * math.log(alpha)))
    return result


def tightest_time(alpha: float) -> float:
    """Return the y = n · rho² at which the boundary is narrowest."""
    return -float(special.lambertw(-(alpha**2) / math.e, -1).real) - 1.0


def units_needed(difference: float, variance: float, alpha: float = ALPHA) -> float:
    """Return how many units would set a difference of that size apart from zero; infinite from 10¹² on.

    ``variance`` is the number of units times the squared standard error.
    """
    low, high = 1.0, 1e12
    if not abs(difference) > boundary(high, alpha) * math.sqrt(variance / high):
        return math.inf
    while high / low > 1.001:
        middle = math.sqrt(low * high)
        if abs(difference) > boundary(middle, alpha) * math.sqrt(variance / middle):
            high = middle
        else:
            low = middle
    return high
