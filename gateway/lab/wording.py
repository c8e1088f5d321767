"""Numbers and metrics as one would say them."""

from __future__ import annotations

import math

from gateway.lab.intervals import Interval
from gateway.lab.metrics import FEEDBACK_PREFIX, Metric

_NAMES = {"rep_4": "rep-4", "error": "share of errors", "cancelled": "share of cancelled turns"} | {
    "cut_off": "share of cut-off answers"
}
_MORE_LESS = {"s": ("longer", "shorter"), "tokens": ("more", "fewer"), "words": ("more", "fewer")}
_MAX_DECIMALS = 6


def metric_name(name: str) -> str:
    """Return what a metric is called in a sentence: ``time_to_first_token_s`` is "time to first token"."""
    if name.startswith(FEEDBACK_PREFIX):
        return f"feedback {name.removeprefix(FEEDBACK_PREFIX)!r}"
    return _NAMES.get(name) or name.removesuffix("_s").removesuffix("_nats").replace("_", " ")


def difference_words(metric: Metric, difference: Interval) -> str:
    """Return a difference as "0.61 s shorter [0.42, 0.80]", its numbers in the direction that it names."""
    more, less = _MORE_LESS.get(metric.unit, ("higher", "lower"))
    is_more = difference.mean >= 0.0
    sign = 1.0 if is_more else -1.0
    low, high = sorted((sign * difference.low, sign * difference.high))
    size = amount(metric, abs(difference.mean), low, high)
    return f"{size} {more if is_more else less} {bounds(metric, low, high)}"


def amount(metric: Metric, value: float, low: float = -math.inf, high: float = math.inf) -> str:
    """Return a value with its unit, to two digits of the interval around it; shares in per cent (points)."""
    scale, unit = _scale(metric, is_difference=True)
    number = f"{value * scale:.{decimals(value * scale, low * scale, high * scale)}f}"
    return f"{number} {unit}".rstrip()


def margin_words(metric: Metric, margin: float) -> str:
    """Return a margin as it was written: "2 percentage points"; "nothing" for 0."""
    scale, unit = _scale(metric, is_difference=True)
    return f"{margin * scale:g} {unit}".rstrip() if margin else "nothing"


def mean_words(metric: Metric, mean: float) -> str:
    """Return an arm's mean with its unit."""
    scale, unit = _scale(metric, is_difference=False)
    number = f"{mean * scale:.{decimals(mean * scale, -math.inf, math.inf)}f}"
    return f"{number} {unit}".rstrip()


def bounds(metric: Metric, low: float, high: float) -> str:
    """Return an interval without its unit: "[0.42, 0.80]"."""
    scale, _ = _scale(metric, is_difference=True)
    if not math.isfinite(low) or not math.isfinite(high):
        return "[not known yet]"
    digits = decimals(0.0, low * scale, high * scale)
    return f"[{low * scale:.{digits}f}, {high * scale:.{digits}f}]"


def decimals(value: float, low: float, high: float) -> int:
    """Return how many decimals show two digits of half the interval, or three of a value without one."""
    if math.isfinite(high - low) and high > low:
        return _clamped(1 - math.floor(math.log10((high - low) / 2.0)))
    return _clamped(2 - math.floor(math.log10(abs(value)))) if value and math.isfinite(value) else 0


def counted(number: int, noun: str) -> str:
    """Return "1 unit", "1,200 units"."""
    return f"{number:,} {noun}" + "s" * (number != 1)


def listed(words: list[str]) -> str:
    """Return "a", "a and b", "a, b and c"."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _scale(metric: Metric, *, is_difference: bool) -> tuple[float, str]:
    if metric.unit == "share":
        return 100.0, "percentage points" if is_difference else "%"
    return 1.0, "" if metric.unit == "cosine" else metric.unit


def _clamped(digits: int) -> int:
    return max(0, min(_MAX_DECIMALS, digits))
