"""Draws one token: temperature, top-k, top-p, min-p, then the inverse CDF over the rest, largest first."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from worker.decode.row import Ids, Row
from worker.thermo.entropy import DoubleRow, check_peak

# Where nothing bounds the candidates, the draw looks at the head, and at more only when u falls beyond it.
_HEADS = (64, 4096)


@dataclass(frozen=True, slots=True)
class Limits:
    """What truncates a step. Temperature 0 is greedy; ``top_k`` is the vocabulary's size for none."""

    temperature: float
    top_k: int
    top_p: float = 1.0
    min_p: float = 0.0

    @property
    def bounds_mass(self) -> bool:
        return self.top_p < 1.0 or self.min_p > 0.0


@dataclass(frozen=True, slots=True)
class Draw:
    """The token, the number of candidates after top-k, and the entropy of what it was drawn from, in nats."""

    token_id: int
    num_candidates: int
    entropy_nats: float


def draw(row: Row, limits: Limits, u: float) -> Draw:
    """Draw a token from the row with the random number u in [0, 1).

    Raises InvalidRowError where bias and mask have left nothing to draw from.
    """
    check_peak(row.peak)
    num_candidates = min(limits.top_k, row.num_possible)
    if limits.temperature == 0.0:
        return Draw(row.argmax(), num_candidates, 0.0)
    if num_candidates < row.num_possible:
        return _draw_from_head(row, limits, u, num_candidates)
    return _draw_from_all(row, limits, u, num_candidates)


def _draw_from_head(row: Row, limits: Limits, u: float, num_candidates: int) -> Draw:
    ids = row.largest(num_candidates)
    weights = _weights(row, ids, limits.temperature)
    kept = weights[: _num_kept(weights, np.cumsum(weights), float(weights.sum()), limits)]
    return _draw_from_kept(ids, kept, u, num_candidates)


def _draw_from_all(row: Row, limits: Limits, u: float, num_candidates: int) -> Draw:
    moments = row.moments(limits.temperature)
    total = moments.mass * math.exp((moments.peak_logit - row.peak) / limits.temperature)
    for size in (*_HEADS, row.size):
        ids = row.largest(size)
        weights = _weights(row, ids, limits.temperature)
        cumulative = np.cumsum(weights)
        is_all = len(ids) == num_candidates
        if is_all:
            # The far tail is smaller than the error of a float32 sum, so it is drawn by the exact one.
            total = float(cumulative[-1])
        if limits.bounds_mass:
            num_kept = _num_kept(weights, cumulative, total, limits)
            if num_kept < len(ids) or is_all:
                return _draw_from_kept(ids, weights[:num_kept], u, num_candidates)
        elif is_all or u * total < cumulative[-1]:
            return Draw(_pick(ids, cumulative, u * total), num_candidates, moments.entropy_nats)
    raise AssertionError("the last head holds the whole vocabulary")


def _draw_from_kept(ids: Ids, kept: DoubleRow, u: float, num_candidates: int) -> Draw:
    cumulative = np.cumsum(kept)
    return Draw(_pick(ids, cumulative, u * float(cumulative[-1])), num_candidates, _entropy(kept))


def _weights(row: Row, ids: Ids, temperature: float) -> DoubleRow:
    logits = row.logits[ids].astype(np.float64)
    weights: DoubleRow = np.exp((logits - logits[0]) / temperature)
    return weights


def _num_kept(weights: DoubleRow, cumulative: DoubleRow, total: float, limits: Limits) -> int:
    """Return how many of the descending weights stay: until the nucleus is full, and not below min-p."""
    num_kept = len(weights)
    if limits.top_p < 1.0:
        # Kept while the mass above is short of top_p; the first is always kept.
        num_kept = 1 + int(np.searchsorted(cumulative[:-1], limits.top_p * total, side="left"))
    if limits.min_p > 0.0:
        num_kept = min(num_kept, int((weights >= limits.min_p).sum()))
    return max(1, num_kept)


def _pick(ids: Ids, cumulative: DoubleRow, target: float) -> int:
    index = int(np.searchsorted(cumulative, target, side="right"))
    return int(ids[min(index, len(cumulative) - 1)])


def _entropy(weights: DoubleRow) -> float:
    p = weights / weights.sum()
    p = p[p > 0.0]
    return max(0.0, float(-(p * np.log(p)).sum()))
