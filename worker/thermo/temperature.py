"""The temperature controller. dH / d(ln T) is the varentropy, and positive: hotter means more entropy."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TemperatureRange:
    """The bounds of T, and the largest change of ln T in one step."""

    t_min: float
    t_max: float
    max_step: float

    def clip(self, temperature: float) -> float:
        return max(self.t_min, min(temperature, self.t_max))


def feedback(temperature: float, error_nats: float, gain: float, bounds: TemperatureRange) -> float:
    """Return the next T: ln T <- ln T - clip(gain * error, +-max_step), within the bounds.

    ``error_nats`` is the smoothed entropy minus its target. The minus makes the loop stable (too much entropy
    cools), for 0 < gain * varentropy < 2; with a plus it runs away.
    """
    step = max(-bounds.max_step, min(gain * error_nats, bounds.max_step))
    return bounds.clip(math.exp(math.log(temperature) - step))


def mapped(base: float, s: float, map_range: float, exponent: float, bounds: TemperatureRange) -> float:
    """Return T = base + map_range * s^exponent within the bounds: hotter when unsure, without memory."""
    return bounds.clip(base + map_range * s**exponent)
