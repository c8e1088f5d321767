"""Who counts, and in which arm: observations sorted by unit, in order of exposure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gateway.lab.findings import Exclusions
from gateway.lab.observations import Observations, ObservedTurn
from gateway.store.document import ExperimentDocument


@dataclass(frozen=True, slots=True)
class Turns:
    """Turns beside the numbers of their units."""

    turns: tuple[ObservedTurn, ...]
    units: NDArray[np.int64]

    def values(self, metric: str) -> NDArray[np.float64]:
        """Return the metric of each turn; NaN where it lacks."""
        return np.fromiter((turn.values.get(metric, math.nan) for turn in self.turns), float, len(self.turns))


@dataclass(frozen=True, slots=True)
class Cohort:
    """``arms`` has the number of each unit's arm in the document's order; a unit's number is its place there.

    ``pairs`` are turns, each beside its shadow; their units are those of the first.
    """

    arms: NDArray[np.int64]
    inside: Turns
    before: Turns
    pairs: Turns
    shadows: Turns
    exclusions: Exclusions

    def unit_means(self, turns: Turns, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the mean of each unit's turns that have a value; NaN for a unit without."""
        known = ~np.isnan(values)
        units, size = turns.units[known], len(self.arms)
        counts = np.bincount(units, minlength=size)
        sums = np.bincount(units, values[known], minlength=size)
        means = np.full(size, math.nan)
        np.divide(sums, counts, out=means, where=counts > 0)
        return means


def cohort_of(document: ExperimentDocument, observations: Observations) -> Cohort:
    """Sort the observations. A turn counts in the arm that it was assigned, whatever became of it."""
    numbers = {arm.name: number for number, arm in enumerate(document.arms)}
    moved = observations.moved_units | _in_another_arm(observations)
    exposures = {unit: each for unit, each in observations.exposures.items() if unit not in moved}
    enrolled = sorted((each.at, unit) for unit, each in exposures.items() if each.arm in numbers)
    places = {unit: place for place, (_, unit) in enumerate(enrolled)}
    counts: Counter[str] = Counter()
    inside: list[ObservedTurn] = []
    before: list[ObservedTurn] = []
    shadows: list[ObservedTurn] = []
    for turn in observations.turns:
        place = places.get(turn.unit)
        if turn.shadow_of:
            shadows.append(turn)
        elif place is None:
            counts["unexposed"] += bool(turn.arm) and turn.unit not in observations.exposures
        elif turn.arm:
            inside.append(turn)
        elif turn.at < enrolled[place][0]:
            before.append(turn)
        else:
            counts["left"] += 1
    by_id = {turn.id: turn for turn in inside}
    paired = [(by_id[shadow.shadow_of], shadow) for shadow in shadows if shadow.shadow_of in by_id]
    arms = np.array([numbers[exposures[unit].arm] for _, unit in enrolled], np.int64)
    heard = {turn.unit for turn in inside}
    exclusions = Exclusions(
        num_damaged=observations.num_damaged,
        num_unknown_feedback=observations.num_unknown_feedback,
        num_moved_units=len(moved),
        num_foreign_units=len(exposures) - len(enrolled),
        num_silent_units=sum(unit not in heard for unit in places),
        num_unexposed_turns=counts["unexposed"],
        num_left_turns=counts["left"],
        num_unpaired_shadows=len(shadows) - len(paired),
    )

    def placed(turns: Sequence[ObservedTurn], of: Sequence[ObservedTurn] | None = None) -> Turns:
        units = np.array([places[turn.unit] for turn in of or turns], np.int64)
        return Turns(tuple(turns), units)

    pairs = [ours for ours, _ in paired]
    return Cohort(
        arms,
        placed(inside),
        placed(before),
        placed(pairs),
        placed([shadow for _, shadow in paired], pairs),
        exclusions,
    )


def _in_another_arm(observations: Observations) -> set[str]:
    """Units with a turn in another arm than the one of their exposure."""
    exposures = observations.exposures
    return {
        turn.unit
        for turn in observations.turns
        if turn.arm
        and not turn.shadow_of
        and (exposed := exposures.get(turn.unit))
        and turn.arm != exposed.arm
    }
