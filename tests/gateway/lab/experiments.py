"""Experiments for tests: documents, and observations built turn by turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gateway.lab.observations import Exposed, Observations, ObservedTurn
from gateway.store.document import Arm, ExperimentDocument

TTFT = "time_to_first_token_s"
HALVES = (Arm(name="treatment", start=0.0), Arm(name="control", start=0.5))


def document(**changes: Any) -> ExperimentDocument:
    """An experiment of two halves on the time to the first token."""
    fields: dict[str, Any] = {
        "id": "gain",
        "enrol_seed": "enrol",
        "arm_seed": "arm",
        "arms": HALVES,
        "primary_metric": TTFT,
    }
    return ExperimentDocument(**(fields | changes))


@dataclass
class Seen:
    """Observations in the making; units are exposed at 100, 101, 102 …"""

    exposures: dict[str, Exposed] = field(default_factory=dict)
    turns: list[ObservedTurn] = field(default_factory=list)

    def unit(self, name: str, arm: str, *turns: Mapping[str, float]) -> None:
        """Expose a unit and give it turns."""
        at = 100.0 + len(self.exposures)
        self.exposures[name] = Exposed(arm, at)
        for values in turns:
            self.turn(name, arm, at, values)

    def turn(
        self, unit: str, arm: str, at: float, values: Mapping[str, float], *, shadow_of: str = ""
    ) -> str:
        """Add a turn and return its id."""
        name = f"turn-{len(self.turns)}"
        self.turns.append(ObservedTurn(name, unit, arm, at, dict(values), shadow_of))
        return name

    def observations(self, **more: Any) -> Observations:
        return Observations(dict(self.exposures), tuple(self.turns), **more)


def simulated(
    num_units: int, effect: float, *, seed: int = 0, arms: Sequence[str] = ("treatment", "control")
) -> Seen:
    """Units in turn in each arm, of 1 to 3 turns; seconds around 1, ``effect`` more in all but the last."""
    random = np.random.default_rng(seed)
    seen = Seen()
    for number in range(num_units):
        arm = arms[number % len(arms)]
        own = random.normal(1.0, 0.2) + (effect if arm != arms[-1] else 0.0)
        turns = [{TTFT: own + random.normal(0.0, 0.1)} for _ in range(random.integers(1, 4))]
        seen.unit(f"unit-{number}", arm, *turns)
    return seen
