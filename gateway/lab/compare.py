"""One metric: what it is in each arm, the arms against the control, and turns against their shadows."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gateway.lab.cohort import Cohort
from gateway.lab.cuped import adjusted
from gateway.lab.findings import ArmFigures, Comparison, Cuped, MetricFindings, ShadowFindings
from gateway.lab.metrics import Metric
from gateway.lab.sequential import (
    Sample,
    difference_interval,
    difference_precision,
    mean_interval,
    units_needed,
)
from gateway.store.document import ExperimentDocument

Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class UnitValues:
    """A metric of those units that have it."""

    values: Values
    arms: NDArray[np.int64]
    is_share: bool
    """Whether arms whose units are all alike are shares of events."""
    cuped: Cuped | None = None

    def sample(self, arm: int) -> Sample:
        return Sample.of(self.values[self.arms == arm], is_share=self.is_share)


def metric_findings(
    metric: Metric, document: ExperimentDocument, cohort: Cohort, alpha: float
) -> MetricFindings | None:
    """Return what there is of a metric; None where no turn of the experiment has it."""
    turn_values = cohort.inside.values(metric.name)
    known = ~np.isnan(turn_values)
    if not known.any():
        return None
    means = cohort.unit_means(cohort.inside, turn_values)
    has = ~np.isnan(means)
    arms = cohort.arms[has]
    is_share = _are_events(metric, turn_values[known]) or _is_constant_share(metric, means[has], arms)
    plain = UnitValues(means[has], arms, is_share)
    best = _with_the_period_before(plain, cohort, metric, has)
    control = document.arms.index(document.control)
    turn_arms = cohort.arms[cohort.inside.units]
    is_unfinished = (cohort.inside.values("error") == 1.0) | (cohort.inside.values("cancelled") == 1.0)
    figures = [
        ArmFigures(
            arm=arm.name,
            num_units=int((plain.arms == number).sum()),
            num_turns=int((known & (turn_arms == number)).sum()),
            mean=mean_interval(plain.sample(number)),
            num_missing=int((~known & (turn_arms == number)).sum()),
            num_unfinished=int((~known & is_unfinished & (turn_arms == number)).sum()),
        )
        for number, arm in enumerate(document.arms)
    ]
    comparisons = [
        replace(_comparison(arm.name, best.sample(number), best.sample(control), alpha), cuped=best.cuped)
        for number, arm in enumerate(document.arms)
        if number != control
    ]
    reference = figures[control].mean.mean
    related = [replace(each, relative=_relative(each.difference.mean, reference)) for each in comparisons]
    return MetricFindings(metric, tuple(figures), tuple(related))


def shadow_findings(
    metric: Metric, document: ExperimentDocument, cohort: Cohort, alpha: float
) -> list[ShadowFindings]:
    """Return each arm's turns against their shadows, where both have the metric."""
    differences = cohort.pairs.values(metric.name) - cohort.shadows.values(metric.name)
    known = ~np.isnan(differences)
    if not known.any():
        return []
    means = cohort.unit_means(cohort.pairs, differences)
    pair_arms = cohort.arms[cohort.pairs.units]
    found = []
    for number, arm in enumerate(document.arms):
        units = means[(cohort.arms == number) & ~np.isnan(means)]
        if len(units):
            num_pairs = int((known & (pair_arms == number)).sum())
            interval = mean_interval(Sample.of(units), alpha)
            found.append(ShadowFindings(metric, arm.name, len(units), num_pairs, interval))
    return found


def _comparison(arm: str, ours: Sample, theirs: Sample, alpha: float) -> Comparison:
    interval = difference_interval(ours, theirs, alpha)
    needed = math.nan
    if math.isfinite(interval.low):
        precision = difference_precision(ours, theirs)
        variance = float(precision.standard_error) ** 2 * float(precision.num_units)
        needed = units_needed(interval.mean, variance, alpha)
    return Comparison(arm, interval, None, None, needed)


def _with_the_period_before(
    plain: UnitValues, cohort: Cohort, metric: Metric, has: NDArray[np.bool_]
) -> UnitValues:
    """Return the adjusted values; the plain ones where that cannot be done, or an arm has no variance yet."""
    arms = np.unique(plain.arms)
    if any(np.ptp(plain.values[plain.arms == arm]) == 0.0 for arm in arms):
        return plain
    before = cohort.unit_means(cohort.before, cohort.before.values(metric.name))[has]
    result = adjusted(plain.values, before, plain.arms)
    return plain if result is None else UnitValues(result[0], plain.arms, False, result[1])


def _is_constant_share(metric: Metric, means: Values, arms: NDArray[np.int64]) -> bool:
    """Whether no arm varies at all, so that neither can be taken to vary as the other does."""
    return metric.unit == "share" and all(np.ptp(means[arms == arm]) == 0.0 for arm in np.unique(arms))


def _are_events(metric: Metric, values: Values) -> bool:
    """Whether turns say yes or no. Seconds and tokens never do, even if all seen so far are 0 or 1."""
    return metric.unit in ("share", "") and bool(np.isin(values, (0.0, 1.0)).all())


def _relative(difference: float, reference: float) -> float | None:
    return difference / reference if reference and math.isfinite(reference) else None
