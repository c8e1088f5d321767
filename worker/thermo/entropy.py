"""Entropy of a row of logits, exact and in one pass.

All entropies are in nats. Rows are float32, sums are combined in double precision.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatRow = NDArray[np.float32]
DoubleRow = NDArray[np.float64]

IMPOSSIBLE_LOGIT = -1e30
"""A logit at or below this counts as minus infinity: masks are also written as the smallest float."""

# Below this share of the old mass a subtraction has lost too many digits.
_TRUSTED_SHARE = 0.5
_LARGEST_EXPONENT = 600.0
_NATS_PER_BIT = math.log(2.0)


class InvalidRowError(ValueError):
    """The row has no distribution: a NaN, a plus infinity, or nothing that is finite."""


@dataclass(frozen=True, slots=True)
class Moments:
    """What one pass over a row yields, from which every observed quantity follows.

    With d = (z - max z) / T and w = exp(d): ``mass`` = sum w, ``first`` = sum w d, ``second`` = sum w d^2.
    """

    peak_logit: float
    temperature: float
    mass: float
    first: float
    second: float
    num_finite: int

    @property
    def entropy_nats(self) -> float:
        """H = -sum p ln p = ln mass - first / mass."""
        return max(0.0, math.log(self.mass) - self.first / self.mass)

    @property
    def normalised_entropy(self) -> float:
        """s = H / ln V."""
        return normalise_entropy(self.entropy_nats, self.num_finite)

    @property
    def gravity(self) -> float:
        """G = 1 - s."""
        return 1.0 - self.normalised_entropy

    @property
    def num_effective(self) -> float:
        """N_eff = exp(H)."""
        return math.exp(self.entropy_nats)

    @property
    def p_max(self) -> float:
        """Probability of the most probable token."""
        return 1.0 / self.mass

    @property
    def varentropy(self) -> float:
        """Var_p(ln p) in nats^2, which is dH / d(ln T)."""
        mean = self.first / self.mass
        return max(0.0, self.second / self.mass - mean * mean)

    @property
    def log_normaliser(self) -> float:
        """ln sum exp(z / T)."""
        return self.peak_logit / self.temperature + math.log(self.mass)

    def replaced(self, old: FloatRow, new: FloatRow) -> Moments | None:
        """Return the moments after the logits ``old`` have become ``new``, still relative to the same peak.

        Minus infinities are allowed. None where too little of the old mass remains, or too much is added,
        for this to be exact.
        """
        removed, added = self._sums(old), self._sums(new)
        if removed is None or added is None:
            return None
        mass = self.mass - removed[0] + added[0]
        if mass < _TRUSTED_SHARE * self.mass:
            return None
        return Moments(
            self.peak_logit,
            self.temperature,
            mass,
            self.first - removed[1] + added[1],
            self.second - removed[2] + added[2],
            self.num_finite - removed[3] + added[3],
        )

    def _sums(self, logits: FloatRow) -> tuple[float, float, float, int] | None:
        finite = logits[logits > -np.inf].astype(np.float64)
        shifted = (finite - self.peak_logit) / self.temperature
        if len(shifted) and shifted.max() > _LARGEST_EXPONENT:
            return None
        weights = np.exp(shifted)
        weighted = weights * shifted
        return float(weights.sum()), float(weighted.sum()), float(weighted @ shifted), len(finite)


class Scratch:
    """Buffers for rows of up to ``size`` logits, so that a pass neither allocates nor leaves the cache.

    All passes are numpy's: torch's ``exp`` wakes its thread pool even for a thousand elements, and waiting
    for that costs several times the work.
    """

    def __init__(self, size: int) -> None:
        self._bits: FloatRow = np.zeros(size, np.float32)
        self._weights: FloatRow = np.zeros(size, np.float32)
        self._ones: FloatRow = np.ones(size, np.float32)

    def moments(self, finite: FloatRow, peak: float, temperature: float) -> Moments:
        """Return the moments of a row whose logits are all finite and at most ``peak``."""
        mass = self.mass(finite, peak, temperature)
        size = len(finite)
        bits, weights = self._bits[:size], self._weights[:size]
        first = float(weights @ bits) * _NATS_PER_BIT
        weighted = np.multiply(weights, bits, out=weights)
        second = float(weighted @ bits) * _NATS_PER_BIT**2
        return Moments(peak, temperature, mass, first, second, size)

    def mass(self, finite: FloatRow, peak: float, temperature: float) -> float:
        """Return the first of the moments alone, for half the cost."""
        size = len(finite)
        bits, weights = self._bits[:size], self._weights[:size]
        np.subtract(finite, np.float32(peak), out=bits)
        # In powers of two, since numpy's exp2 takes half the time of its exp.
        np.multiply(bits, np.float32(1.0 / (temperature * _NATS_PER_BIT)), out=bits)
        np.exp2(bits, out=weights)
        # A dot with ones costs a third of a sum.
        return float(weights @ self._ones[:size])


def observe(logits: FloatRow, temperature: float = 1.0, scratch: Scratch | None = None) -> Moments:
    """Return the moments of softmax(logits / temperature) for one float32 row [V].

    Minus infinities are dropped (and do not count in ln V). The temperature must be positive.
    Raises InvalidRowError for a NaN, a plus infinity, or a row without a finite logit.
    """
    peak = float(logits.max()) if len(logits) else -math.inf
    check_peak(peak)
    finite = logits if logits.min() > IMPOSSIBLE_LOGIT else logits[logits > IMPOSSIBLE_LOGIT]
    return (scratch or Scratch(len(logits))).moments(finite, peak, temperature)


def check_peak(peak: float) -> None:
    """Raise InvalidRowError unless ``peak``, a row's maximum, is possible. A NaN makes the maximum NaN."""
    if math.isnan(peak):
        raise InvalidRowError("the model's logits contain a NaN")
    if peak == math.inf:
        raise InvalidRowError("the model's logits contain an infinity")
    if peak <= IMPOSSIBLE_LOGIT:
        raise InvalidRowError("no token of the vocabulary is possible")


def normalise_entropy(entropy_nats: float, num_finite: int) -> float:
    """Return s = H / ln V in [0, 1], V the number of finite logits; 0 where only one is finite."""
    return min(1.0, entropy_nats / math.log(num_finite)) if num_finite > 1 else 0.0


def quantise_entropy(entropy_nats: float) -> float:
    """Round to 1e-4 nat, so that a threshold does not hang on the last bits of a matrix product."""
    return round(entropy_nats * 1e4) / 1e4
