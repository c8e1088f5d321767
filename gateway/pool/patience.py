"""How long a worker may stay silent before another is asked too: a multiple of what it usually takes.

The time to the first token grows with the prompt (its prefill), so times are kept by prompt size. Hedging
late, and a bounded share of all turns, is from Dean and Barroso, The Tail at Scale (2013), doi
10.1145/2408776.2408794.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

QUANTILE = 0.95
MAX_SAMPLES = 128
MIN_SAMPLES = 16
"""With fewer, nothing is known of what is usual."""
FIXED_TOKENS = 512.0
"""What a request without a prompt costs, in tokens of prefill: queueing, the network, the first step."""
CHARS_PER_TOKEN = 4.0
HEDGE_SHARE = 0.1
MAX_HEDGES_AT_ONCE = 10.0


@dataclass(frozen=True, slots=True)
class PatienceSettings:
    """``factor`` of the usual time; 0 is patience without end. Times in seconds."""

    factor: float
    floor_s: float
    ceiling_s: float
    """Also what a stream's first token gets while nothing is known."""


class BeginTimes:
    """What beginnings took lately, as seconds a token of prompt and fixed cost."""

    __slots__ = ("_rate", "_rates")

    def __init__(self) -> None:
        self._rates: deque[float] = deque(maxlen=MAX_SAMPLES)
        self._rate: float | None = None

    def observe(self, num_chars: int, seconds: float) -> None:
        """A request of ``num_chars`` took ``seconds`` to begin, or was given up after them."""
        self._rates.append(seconds / _size(num_chars))
        self._rate = None

    def usual_s(self, num_chars: int) -> float | None:
        """Return what 95 of 100 such requests take at most; None while too little is known."""
        if len(self._rates) < MIN_SAMPLES:
            return None
        if self._rate is None:
            ordered = sorted(self._rates)
            self._rate = ordered[math.ceil(QUANTILE * len(ordered)) - 1]
        return self._rate * _size(num_chars)


def patience_s(
    settings: PatienceSettings, own: BeginTimes, others: Iterable[BeginTimes], num_chars: int
) -> float | None:
    """Return how long to wait, by its own times, else by the slowest other worker's; None: nothing known."""
    if settings.factor == 0.0:
        return None
    usual_s = own.usual_s(num_chars)
    if usual_s is None:
        known = [known_s for times in others if (known_s := times.usual_s(num_chars)) is not None]
        usual_s = max(known, default=None)
    if usual_s is None:
        return None
    return min(max(settings.factor * usual_s, settings.floor_s), settings.ceiling_s)


class HedgeBudget:
    """Lets a tenth of the turns be sent twice, ten at once: a fleet that is slow gets no second load."""

    def __init__(self) -> None:
        self._left = MAX_HEDGES_AT_ONCE

    def earn(self) -> None:
        """A turn was sent."""
        self._left = min(self._left + HEDGE_SHARE, MAX_HEDGES_AT_ONCE)

    def spend(self) -> bool:
        """Whether one more may be sent twice now; it is counted."""
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True


def _size(num_chars: int) -> float:
    return FIXED_TOKENS + num_chars / CHARS_PER_TOKEN
