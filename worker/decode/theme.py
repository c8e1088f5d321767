"""The vector form of gravity: how near each token of the output embedding is to a theme."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from worker.decode.vocabulary import Vocabulary
from worker.thermo.entropy import FloatRow

_NUM_NEUTRAL_DIRECTIONS = 4
_SAMPLED_ROWS = 8192
_ITERATIONS = 8
_CHUNK = 8192
_TINY = 1e-9

Vector = NDArray[np.float32]
Matrix = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Geometry:
    """What is known of an output embedding [V, d] once it has been read.

    ``mean`` [d] of the rows that carry meaning; ``inverse_norm`` [V] of the centred rows; ``neutral`` [d, 4],
    the directions in which all rows vary most: they tell common words from rare ones, and no themes apart.
    """

    mean: Vector
    inverse_norm: Vector
    neutral: Matrix


class EmbeddingSpace:
    """An output embedding as a space of meanings. Rows are mean-centred and of unit length."""

    def __init__(self, output_embedding: torch.Tensor, vocabulary: Vocabulary) -> None:
        self._rows = output_embedding.detach()
        self._vocabulary = vocabulary

    def theme(self, ids: Sequence[int]) -> Vector | None:
        """Return the theme's unit vector [d] of a text; None where none of its tokens carries a meaning.

        It is the mean of the tokens' rows, each weighed by 1 + ln(times it occurs), in contrast to the
        neutral directions: without that, common words would be near every theme.
        """
        counts = Counter(id_ for id_ in ids if self._has_meaning[id_])
        if not counts:
            return None
        weights = np.array([1.0 + math.log(count) for count in counts.values()], np.float32)
        vector = self._contrasted(weights @ self._centred(list(counts)))
        unit: Vector = vector / max(float(np.linalg.norm(vector)), _TINY)
        return unit

    def similarity(self, theme: Vector) -> FloatRow:
        """Return the cosine of every centred row with the theme [V]; 0 for tokens that carry no meaning."""
        geometry = self._geometry
        with torch.inference_mode():
            direction = torch.from_numpy(theme).to(self._rows)
            # `linear` is faster than `mv` in bfloat16.
            product = torch.nn.functional.linear(direction[None], self._rows)[0].float().cpu().numpy()
        similarity = (product - geometry.mean @ theme) * geometry.inverse_norm
        return np.where(self._has_meaning, similarity, np.float32(0.0))

    def drift(self, theme: Vector, ids: Sequence[int]) -> float | None:
        """Return 1 - cos(mean of the tokens' rows, theme); None where no token carries a meaning."""
        meaningful = [id_ for id_ in ids if self._has_meaning[id_]]
        if not meaningful:
            return None
        mean = self._contrasted(self._centred(meaningful).sum(axis=0))
        return 1.0 - float(mean @ theme) / max(float(np.linalg.norm(mean)), _TINY)

    @cached_property
    def _has_meaning(self) -> NDArray[np.bool_]:
        return np.array([self._is_word(id_) for id_ in range(self._vocabulary.size)], np.bool_)

    def _is_word(self, token_id: int) -> bool:
        if not self._vocabulary.is_steerable[token_id]:
            return False
        text = self._vocabulary.token_bytes[token_id].decode().strip()
        # One Latin letter means nothing, one ideograph does.
        return any(map(str.isalpha, text)) and (len(text) > 1 or not text.isascii())

    @cached_property
    def _geometry(self) -> Geometry:
        meaningful = np.flatnonzero(self._has_meaning)
        sampled = meaningful[:: max(1, len(meaningful) // _SAMPLED_ROWS)]
        total = sum(self._read(chunk).sum(axis=0, dtype=np.float64) for chunk in _chunks(meaningful))
        mean = (np.asarray(total) / max(1, len(meaningful))).astype(np.float32)
        everything = np.arange(self._vocabulary.size)
        norms = [np.linalg.norm(self._read(chunk) - mean, axis=1) for chunk in _chunks(everything)]
        inverse_norm: Vector = 1.0 / np.maximum(np.concatenate(norms), np.float32(_TINY))
        sample = (self._read(sampled) - mean) * inverse_norm[sampled, None]
        return Geometry(mean, inverse_norm, _principal_directions(sample))

    def _read(self, ids: NDArray[np.intp]) -> Matrix:
        rows: Matrix = self._rows[torch.from_numpy(ids)].float().cpu().numpy()
        return rows

    def _centred(self, ids: Sequence[int]) -> Matrix:
        geometry, at = self._geometry, np.array(ids, np.intp)
        centred: Matrix = (self._read(at) - geometry.mean) * geometry.inverse_norm[at, None]
        return centred

    def _contrasted(self, vector: Vector) -> Vector:
        neutral = self._geometry.neutral
        contrasted: Vector = vector - neutral @ (neutral.T @ vector)
        return contrasted


def _chunks(ids: NDArray[np.intp]) -> Iterator[NDArray[np.intp]]:
    # A float32 copy of the whole matrix would double the model's memory for a moment.
    for start in range(0, len(ids), _CHUNK):
        yield ids[start : start + _CHUNK]


def _principal_directions(sample: Matrix) -> Matrix:
    """Return the leading principal directions [d, 4] by subspace iteration from a fixed start."""
    width = min(2 * _NUM_NEUTRAL_DIRECTIONS, sample.shape[1])
    start = np.random.default_rng(0).standard_normal((sample.shape[1], width), np.float32)
    basis, scale = np.linalg.qr(start)
    for _ in range(_ITERATIONS):
        basis, scale = np.linalg.qr(sample.T @ (sample @ basis))
    order = np.argsort(-np.abs(np.diagonal(scale)))[:_NUM_NEUTRAL_DIRECTIONS]
    directions: Matrix = np.ascontiguousarray(basis[:, order])
    return directions
