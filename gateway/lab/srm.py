"""Sample-ratio mismatch: do the arms have as many units as their widths say?

Where they do not, units were lost or counted twice on the way, and most probably not at random: what is left
cannot be compared, whatever it shows. Two tests of the same counts:

- Pearson's chi-square for one look. The alarm is p < 0.001. Whoever looks at all times sees it more often
  than in one experiment of a thousand, for a while: the cheap kind of error, since it hides a verdict that
  comes back.
- The sequential multinomial test of Lindon and Malek, "Anytime-valid inference for multinomial count data"
  (2022): 1 / Bayes factor of a Dirichlet mixture against the widths. Where the widths are right the factor is
  a martingale of mean 1, so in at most a share p of experiments its inverse ever falls below p (Ville 1939).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special  # type: ignore[import-untyped]

from gateway.store.document import Arm

ALARM_P = 0.001
_CONCENTRATION = 100.0
"""Of the Dirichlet mixture: shares about 5 points from the widths are expected where these are wrong."""


@dataclass(frozen=True, slots=True)
class SampleRatio:
    """Units of each arm, in the document's order of arms, and what was expected."""

    counts: Mapping[str, int]
    expected: Mapping[str, float]
    chi_square: float
    p_value: float
    """Of one look; 1 where there are no units or one arm."""
    anytime_p_value: float
    """Holds however often one looks."""
    is_alarm: bool


def sample_ratio(counts: Mapping[str, int], arms: Sequence[Arm]) -> SampleRatio:
    """Compare the number of units of each arm with its width; arms that ``counts`` lacks have none."""
    observed = np.array([counts.get(arm.name, 0) for arm in arms], float)
    shares = np.array(list(widths(arms).values()))
    expected = shares * observed.sum()
    chi_square = float(((observed - expected) ** 2 / expected).sum()) if observed.sum() else 0.0
    is_comparable = len(arms) > 1 and observed.sum() > 0
    p_value = float(special.chdtrc(len(arms) - 1, chi_square)) if is_comparable else 1.0
    return SampleRatio(
        counts={arm.name: int(count) for arm, count in zip(arms, observed, strict=True)},
        expected={arm.name: float(count) for arm, count in zip(arms, expected, strict=True)},
        chi_square=chi_square,
        p_value=p_value,
        anytime_p_value=min(1.0, math.exp(-min(700.0, log_bayes_factor(observed, shares)))),
        is_alarm=p_value < ALARM_P,
    )


def widths(arms: Sequence[Arm]) -> dict[str, float]:
    """Return each arm's share of the enrolled units: up to the next one's start."""
    ends = [*(arm.start for arm in arms[1:]), 1.0]
    return {arm.name: end - arm.start for arm, end in zip(arms, ends, strict=True)}


def log_bayes_factor(counts: NDArray[np.float64], weights: NDArray[np.float64]) -> float:
    """Return ln of the evidence against ``weights``: Dirichlet-multinomial over multinomial."""
    prior = _CONCENTRATION * weights
    mixture = special.gammaln(prior + counts) - special.gammaln(prior)
    total = special.gammaln(prior.sum() + counts.sum()) - special.gammaln(prior.sum())
    return float(mixture.sum() - total - (counts * np.log(weights)).sum())
