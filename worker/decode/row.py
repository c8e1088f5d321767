"""One row of logits while a step works on it: observed, edited in place, searched for its largest entries."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from worker.thermo.entropy import IMPOSSIBLE_LOGIT, FloatRow, Moments, Scratch, check_peak

Ids = NDArray[np.intp]
LogitRow = NDArray[np.float32] | NDArray[np.uint16]
"""A row as the model gives it: float32, or the bits of bfloat16."""

_BLOCK = 64
_FEW_EDITS = 32
_SMALL_SORT = 512


class Row:
    """Float32 logits on buffers that are reused from row to row, so that every pass stays in cache.

    The vocabulary is seen as a grid of 64 rows. The maximum of each column is kept up to date: the k-th
    largest of these maxima is a floor above which at least k logits lie, and few more.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._width = -(-size // _BLOCK)
        padded: FloatRow = np.full(_BLOCK * self._width, -np.inf, np.float32)
        self.logits: FloatRow = padded[:size]
        self._bits: NDArray[np.uint32] = self.logits.view(np.uint32)
        self._grid = padded.reshape(_BLOCK, self._width)
        self._column_max: FloatRow = np.empty(self._width, np.float32)
        self._scratch = Scratch(size)
        self._finite: FloatRow = self.logits
        self._peak = 0.0
        self._observed: dict[float, Moments] = {}
        self._edits: list[tuple[FloatRow, FloatRow]] = []
        self._source: LogitRow = self.logits
        self._log_normaliser: float | None = None

    def load(self, source: LogitRow) -> None:
        """Take over one row: float32, or the bits of bfloat16. Raises InvalidRowError."""
        if source.dtype == np.uint16:
            # bfloat16 is the upper half of a float32.
            np.left_shift(source, 16, out=self._bits, dtype=np.uint32)
        else:
            np.copyto(self.logits, source)
        np.max(self._grid, axis=0, out=self._column_max)
        self._peak = float(self._column_max.max())
        self._source = source
        self._log_normaliser = None
        self._observed.clear()
        self._edits.clear()
        check_peak(self._peak)
        self._finite = self.logits
        if self.logits.min() <= IMPOSSIBLE_LOGIT:
            self.logits[self.logits <= IMPOSSIBLE_LOGIT] = -np.inf
            self._finite = self.logits[self.logits > -np.inf]

    @property
    def peak(self) -> float:
        """The largest logit, edits included."""
        return float(self._column_max.max()) if self._edits else self._peak

    @property
    def num_possible(self) -> int:
        """Number of finite logits, edits included."""
        change = sum(int((new > -np.inf).sum()) - int((old > -np.inf).sum()) for old, new in self._edits)
        return len(self._finite) + change

    def observe(self, temperature: float) -> Moments:
        """Return the moments of softmax(z / T) of the model's own logits. Must come before the first edit."""
        moments = self._observed.get(temperature)
        if moments is None:
            moments = self._scratch.moments(self._finite, self._peak, temperature)
            self._observed[temperature] = moments
        return moments

    def own_logprob(self, token_id: int) -> float:
        """Return ln softmax(z) of the model's own logits at temperature 1, whatever was edited since."""
        value = self._source[token_id]
        logit = value if self._source.dtype == np.float32 else _widen(value)
        return float(logit) - self._own_log_normaliser()

    def _own_log_normaliser(self) -> float:
        if self._log_normaliser is None:
            observed = self._observed.get(1.0)
            mass = observed.mass if observed else self._scratch.mass(self._finite, self._peak, 1.0)
            self._log_normaliser = self._peak + math.log(mass)
        return self._log_normaliser

    def edit(self, ids: Ids, values: FloatRow) -> None:
        """Set the logits at the given ids, each of which occurs once."""
        if not len(ids):
            return
        self._own_log_normaliser()  # while the logits are still the model's own
        self._edits.append((self.logits[ids], values))
        self.logits[ids] = values
        if len(ids) > _FEW_EDITS:
            np.max(self._grid, axis=0, out=self._column_max)
            return
        columns = ids % self._width
        self._column_max[columns] = self._grid[:, columns].max(axis=0)

    def moments(self, temperature: float) -> Moments:
        """Return the moments of softmax(z / T), edits included."""
        moments: Moments | None = self._observed.get(temperature)
        for old, new in self._edits:
            if moments is None:
                break
            moments = moments.replaced(old, new)
        if moments is not None:
            return moments
        finite = self.logits[self.logits > -np.inf] if self._edits else self._finite
        return self._scratch.moments(finite, self.peak, temperature)

    def argmax(self) -> int:
        """Return the lowest id among the largest logits."""
        return int(self.logits.argmax())

    def at_least(self, threshold: float) -> Ids:
        """Return the ids whose logits reach the threshold, ascending."""
        return np.flatnonzero(self.logits >= threshold)

    def largest(self, count: int) -> Ids:
        """Return exactly ``count`` ids (fewer where fewer are possible), largest logit first, ties by id."""
        if count == 0:
            return np.empty(0, np.intp)
        count = min(count, self.size)
        if count < self._width:
            # Each of the `count` best columns holds an entry at or above this, so the answer does, too.
            floor = np.partition(self._column_max, self._width - count)[self._width - count]
        else:
            floor = np.partition(self.logits, self.size - count)[self.size - count]
        ids = self.at_least(floor) if floor > -np.inf else np.flatnonzero(self.logits > -np.inf)
        return _descending(self.logits[ids], ids)[:count]


def _descending(logits: FloatRow, ids: Ids) -> Ids:
    """Return the ids (ascending as given) in the order of their logits, largest first, ties by id."""
    if len(ids) < _SMALL_SORT:
        return ids[np.argsort(-logits, kind="stable")]
    # One integer a token, its logit's rank above its id, sorts ten times as fast as a stable sort of floats.
    bits = (np.float32(0.0) - logits).view(np.int32)
    rank = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    keys = (rank.astype(np.int64) << 32) | ids
    keys.sort()
    return keys & 0xFFFFFFFF


def _widen(bits: np.uint16) -> np.float32:
    widened: np.float32 = (np.uint32(bits) << np.uint32(16)).view(np.float32)
    return widened
