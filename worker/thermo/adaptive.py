"""How many candidates a step keeps, from its normalised entropy s: few where the model is sure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

Curve = Literal["linear", "geometric"]


def seed_k(s: float, k_min: int, k_max: int) -> int:
    """Return int(k_min + (k_max - k_min) s), the plain form: no calibration, the fraction is cut off."""
    return max(k_min, min(int(k_min + (k_max - k_min) * s), k_max))


def openness(s: float, s_low: float, s_high: float) -> float:
    """Return g = clip((s - s_low) / (s_high - s_low), 0, 1): 0 where a task is surest."""
    return max(0.0, min((s - s_low) / (s_high - s_low), 1.0))


def calibrated_k(g: float, k_min: int, k_max: int, curve: Curve) -> int:
    """Return round(k_min + (k_max - k_min) g), or round(k_min (k_max / k_min)^g) on the geometric curve."""
    return round(_between(g, k_min, k_max, curve))


def calibrated_p(g: float, p_min: float, p_max: float, curve: Curve) -> float:
    """Return the nucleus mass between p_min (at g = 0) and p_max (at g = 1), on the same curve as k."""
    return max(p_min, min(_between(g, p_min, p_max, curve), p_max))


def _between(g: float, low: float, high: float, curve: Curve) -> float:
    return low * (high / low) ** g if curve == "geometric" else low + (high - low) * g


def weigh_in_peak(g: float, p_max: float, leader: float | None, flat: float | None) -> float:
    """Return g corrected by the largest probability, which sees what s alone does not.

    Only where s says more than half open: a leader (p_max >= ``leader``) has rivals behind it, and the middle
    is enough; no leader at all (p_max <= ``flat``), and the whole range is needed. None turns a rule off.
    """
    if g <= 0.5:
        return g
    if leader is not None and p_max >= leader:
        return 0.5
    return 1.0 if flat is not None and p_max <= flat else g


def smooth(previous: float | None, value: float, history_weight: float) -> float:
    """Return history_weight * previous + (1 - history_weight) * value; the first value starts the mean."""
    if previous is None:
        return value
    return history_weight * previous + (1.0 - history_weight) * value


def spike_ceiling(recent: Sequence[float], delta: float) -> float:
    """Return the s above which a step is a spike: the mean of the recent steps plus ``delta``.

    ``delta`` is in units of s. Without recent steps nothing is a spike.
    """
    return sum(recent) / len(recent) + delta if recent else 1.0
