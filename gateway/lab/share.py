"""A share of a finite number of trials, and how well it is known."""

from __future__ import annotations

import math
from dataclasses import dataclass

Z_95 = 1.959963984540054


@dataclass(frozen=True, slots=True)
class Share:
    """``low`` and ``high`` are the ends of the interval, 0 and 1 where there was no trial."""

    num_hits: int
    num_trials: int
    low: float
    high: float

    @property
    def value(self) -> float:
        return self.num_hits / self.num_trials if self.num_trials else 0.0


def wilson(num_hits: int, num_trials: int, z: float = Z_95) -> Share:
    """Return the share with Wilson's score interval, by default of 95 %: it is not empty at 0 and 1.

    Wilson (1927), Probable inference, the law of succession, and statistical inference.
    """
    if num_trials == 0:
        return Share(0, 0, 0.0, 1.0)
    share = num_hits / num_trials
    scale = 1.0 + z * z / num_trials
    centre = (share + z * z / (2 * num_trials)) / scale
    half = z / scale * math.sqrt(share * (1 - share) / num_trials + z * z / (4 * num_trials**2))
    # At the ends rounding must not leave [0, 1].
    return Share(num_hits, num_trials, max(0.0, centre - half), min(1.0, centre + half))
