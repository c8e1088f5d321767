"""Experiments by simulation, many at once, looked at again and again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from gateway.lab.sequential import MIN_UNITS, Precision, margin_of, precision_of

Floats: TypeAlias = NDArray[np.float64]
Flags: TypeAlias = NDArray[np.bool_]
EVERY = 20


@dataclass(frozen=True, slots=True)
class Moments:
    """Of the units so far, at each look: experiments in rows, looks in columns."""

    counts: Floats
    means: Floats
    variances: Floats
    skewness: Floats


@dataclass(frozen=True, slots=True)
class Looks:
    """The difference of two arms at each look, and how it was judged."""

    differences: Floats
    errors: Floats
    margins: Floats
    """NaN where nothing can be said yet."""
    num_units: Floats

    def ever_excludes(self, truth: float) -> float:
        """Share of the experiments in which the interval misses ``truth`` at one look at least."""
        return float((np.abs(self.differences - truth) > self.margins).any(axis=1).mean())

    def z_test_ever_fires(self) -> float:
        """The same for the test of one look, peeked at: 1.96 standard errors."""
        return float((np.abs(self.differences) > 1.959964 * self.errors).any(axis=1).mean())

    def first(self, fires: Flags) -> Floats:
        """Units at the first look where it fires; infinite where it never does."""
        units = self.num_units[np.arange(len(fires)), fires.argmax(axis=1)]
        return np.where(fires.any(axis=1), units, np.inf)


def moments(values: Floats, counted: Flags, looks: NDArray[np.int64]) -> Moments:
    """Return the running moments of the units that are counted, from sums of powers."""
    counts, first, second, third = (
        np.cumsum(np.where(counted, values**power, 0.0), axis=1)[:, looks] for power in range(4)
    )
    counts = np.maximum(counts, 1.0)
    mean = first / counts
    central = second / counts - mean**2
    variance = np.maximum(central * counts / np.maximum(1.0, counts - 1.0), 0.0)
    with np.errstate(all="ignore"):
        skewness = (third / counts - 3.0 * mean * second / counts + 2.0 * mean**3) / variance**1.5
    return Moments(counts, mean, variance, np.nan_to_num(skewness))


def difference_at_looks(values: Floats, is_ours: Flags, every: int = EVERY) -> Looks:
    """Judge ours - theirs after each ``every`` units, as ``difference_interval`` does.

    Values that are all 0 or 1 are events.
    """
    looks = np.arange(every, values.shape[1] + 1, every) - 1
    ours, theirs = moments(values, is_ours, looks), moments(values, ~is_ours, looks)
    if np.isin(values, (0.0, 1.0)).all():
        ours, theirs = with_rare_events(ours), with_rare_events(theirs)
    return judged(ours, theirs)


def with_rare_events(found: Moments) -> Moments:
    """Give an arm in which all units are alike the variance of one more of each kind."""
    share = (found.means * found.counts + 1.0) / (found.counts + 2.0)
    is_alike = (found.means == 0.0) | (found.means == 1.0)
    return replace(found, variances=np.where(is_alike, share * (1.0 - share), found.variances))


def judged(ours: Moments, theirs: Moments) -> Looks:
    """Return what is known of ours - theirs."""
    with np.errstate(all="ignore"):
        precision = precision_of(
            ours.variances,
            ours.counts,
            theirs.variances,
            theirs.counts,
            skewness=np.maximum(np.abs(ours.skewness), np.abs(theirs.skewness)),
        )
        margins = np.asarray(margin_of(precision))
    errors = np.asarray(precision.standard_error)
    is_known = (np.minimum(ours.counts, theirs.counts) >= MIN_UNITS) & (errors > 0.0)
    return Looks(
        ours.means - theirs.means,
        np.where(is_known, errors, np.nan),
        np.where(is_known, margins, np.nan),
        ours.counts + theirs.counts,
    )


def mean_misses(values: Floats, truth: float, every: int = EVERY) -> float:
    """Return the share of the samples whose interval of the mean misses ``truth`` at one look at least."""
    looks = np.arange(every, values.shape[1] + 1, every) - 1
    found = moments(values, np.ones_like(values, bool), looks)
    errors = np.sqrt(found.variances / found.counts)
    with np.errstate(all="ignore"):
        margins = margin_of(
            Precision(errors, found.counts, found.counts - 1.0, found.skewness / np.sqrt(found.counts))
        )
    is_known = (found.counts >= MIN_UNITS) & (errors > 0.0)
    return float((is_known & (np.abs(found.means - truth) > margins)).any(axis=1).mean())
