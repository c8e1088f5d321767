"""The pull towards the theme: its strength over time, and the bias that a token gets from it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from worker.thermo.entropy import DoubleRow

MAX_STAGE_CHANGE_NATS = 0.5


def plausible_logit(peak_logit: float, temperature: float, plausible: float) -> float:
    """Return the logit at which p = plausible * p_max under softmax(z / T); -inf for ``plausible`` 0."""
    return peak_logit + temperature * math.log(plausible) if plausible > 0.0 else -math.inf


def linear_decay(step: int, full_steps: int) -> float:
    """Return 1 up to step ``full_steps``, then falling in a line to 0 over as many steps again."""
    if step <= full_steps:
        return 1.0
    return max(0.0, 1.0 - (step - full_steps) / full_steps) if full_steps else 0.0


def half_life_decay(step: int, full_steps: int, half_life_steps: int) -> float:
    """Return 1 up to step ``full_steps``, then halving every ``half_life_steps``."""
    return 1.0 if step <= full_steps else 0.5 ** ((step - full_steps) / half_life_steps)


@dataclass(frozen=True, slots=True)
class Stage:
    """From step ``start`` on the pull is multiplied by ``factor``."""

    start: int
    factor: float


def stage_target(stages: Sequence[Stage], step: int) -> float:
    """Return the factor of the last stage that has begun (in order of their start); 1 before the first."""
    return next((stage.factor for stage in reversed(stages) if step >= stage.start), 1.0)


def approach(current: float, target: float, nats_per_unit: float) -> float:
    """Return the stage factor one step nearer to its target, so that no bias changes by more than 0.5 nat.

    ``nats_per_unit`` is the largest bias at factor 1.
    """
    if nats_per_unit <= 0.0:
        return target
    largest_change = MAX_STAGE_CHANGE_NATS / nats_per_unit
    return current + max(-largest_change, min(target - current, largest_change))


def drift_strength(strength: float, drift: float, target: float, gain: float, max_strength: float) -> float:
    """Return clip(strength * exp(+gain * (drift - target)), 0, max_strength).

    The farther from the theme, the stronger the pull: here the plus is the negative feedback.
    """
    return max(0.0, min(strength * math.exp(gain * (drift - target)), max_strength))


def bound_bias(bias_nats: DoubleRow, max_bias_nats: float) -> DoubleRow:
    """Return the biases clipped to +-max_bias_nats."""
    clipped: DoubleRow = np.clip(bias_nats, -max_bias_nats, max_bias_nats)
    return clipped
