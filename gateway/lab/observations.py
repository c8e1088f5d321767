"""What an experiment has seen: who came under which arm when, and what was measured of each turn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Exposed:
    """``at`` is Unix time, seconds."""

    arm: str
    at: float


@dataclass(frozen=True, slots=True)
class ObservedTurn:
    """One turn; ``values`` has what clients reported of it too, as ``feedback:NAME``."""

    id: str
    unit: str
    arm: str
    """The arm that it was assigned, whatever became of it; empty where the unit was not enrolled."""
    at: float
    values: Mapping[str, float]
    shadow_of: str = ""
    """The turn that this one repeats in the control's way; such a turn counts in pairs alone."""


@dataclass(frozen=True, slots=True)
class Observations:
    """``exposures`` by unit, the first of each; ``turns`` in no order, one of each id."""

    exposures: Mapping[str, Exposed] = field(default_factory=dict)
    turns: tuple[ObservedTurn, ...] = ()
    moved_units: frozenset[str] = frozenset()
    """Units that were exposed to more than one arm, which must not be."""
    num_damaged: int = 0
    """Entries that could not be read."""
    num_unknown_feedback: int = 0
    """Reports on turns that are not here."""
