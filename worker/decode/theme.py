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


@dataclass(frozen=True, slots=True, eq=False)
class Geometry:
    """What is known of an output embedding [V, d] once it has been read.

    ``mean`` [d] of the rows that carry meaning; ``inverse_norm`` [V] of the centred rows; ``neutral`` [d, 4],
    the directions in which all rows vary most: they tell common words from rare ones, and no themes apart.
    """

    mean: torch.Tensor
    inverse_norm: torch.Tensor
    neutral: torch.Tensor


class EmbeddingSpace:
    """An output embedding as a space of meanings. Rows are mean-centred and of unit length."""

    def __init__(self, output_embedding: torch.Tensor, vocabulary: Vocabulary) -> None:
        self._rows = output_embedding.detach()
        self._vocabulary = vocabulary

    def theme(self, ids: Sequence[int]) -> torch.Tensor | None:
        """Return the theme's unit vector [d] of a text; None where none of its tokens carries a meaning.

        It is the mean of the tokens' rows, each weighed by 1 + ln(times it occurs), in contrast to the
        neutral directions: without that, common words would be near every theme.
        """
        counts = Counter(id_ for id_ in ids if self._has_meaning[id_])
        if not counts:
            return None
        weights = torch.tensor([1.0 + math.log(count) for count in counts.values()])
        vector = self._contrasted(weights.to(self._rows.device) @ self._centred(list(counts)))
        return torch.nn.functional.normalize(vector, dim=0)

    def similarity(self, theme: torch.Tensor) -> FloatRow:
        """Return the cosine of every centred row with the theme [V]; 0 for tokens that carry no meaning."""
        geometry = self._geometry
        with torch.inference_mode():
            # `linear` is three times as fast as `mv` in bfloat16.
            product = torch.nn.functional.linear(theme[None].to(self._rows.dtype), self._rows)[0].float()
            cosine = (product - geometry.mean @ theme) * geometry.inverse_norm
        similarity: FloatRow = cosine.cpu().numpy()
        return np.where(self._has_meaning[: len(similarity)], similarity, np.float32(0.0))

    def drift(self, theme: torch.Tensor, ids: Sequence[int]) -> float | None:
        """Return 1 - cos(mean of the tokens' rows, theme); None where no token carries a meaning."""
        meaningful = [id_ for id_ in ids if self._has_meaning[id_]]
        if not meaningful:
            return None
        mean = self._contrasted(self._centred(meaningful).mean(0))
        return 1.0 - float(mean @ theme / mean.norm().clamp_min(1e-9))

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
        with torch.inference_mode():
            meaningful = torch.from_numpy(np.flatnonzero(self._has_meaning)).to(self._rows.device)
            sampled = meaningful[:: max(1, len(meaningful) // _SAMPLED_ROWS)]
            mean = sum((rows.float().sum(0) for rows in _chunks(self._rows[meaningful])), torch.zeros(()))
            mean = mean / len(meaningful)
            norms = torch.cat([(rows.float() - mean).norm(dim=1) for rows in _chunks(self._rows)])
            inverse_norm = 1.0 / norms.clamp_min(1e-9)
            sample = (self._rows[sampled].float() - mean) * inverse_norm[sampled, None]
            return Geometry(mean, inverse_norm, _principal_directions(sample))

    def _centred(self, ids: Sequence[int]) -> torch.Tensor:
        geometry = self._geometry
        at = torch.tensor(ids, device=self._rows.device)
        return (self._rows[at].float() - geometry.mean) * geometry.inverse_norm[at, None]

    def _contrasted(self, vector: torch.Tensor) -> torch.Tensor:
        neutral = self._geometry.neutral
        return vector - neutral @ (neutral.T @ vector)


def _chunks(rows: torch.Tensor) -> Iterator[torch.Tensor]:
    # A float32 copy of the whole matrix would double the model's memory for a moment.
    for start in range(0, len(rows), _CHUNK):
        yield rows[start : start + _CHUNK]


def _principal_directions(sample: torch.Tensor) -> torch.Tensor:
    """Return the leading principal directions [d, 4] by subspace iteration from a fixed start."""
    start = torch.Generator().manual_seed(0)
    size = (sample.shape[1], 2 * _NUM_NEUTRAL_DIRECTIONS)
    basis: torch.Tensor = torch.linalg.qr(torch.randn(size, generator=start).to(sample.device)).Q
    for _ in range(_ITERATIONS):
        basis, scale = torch.linalg.qr(sample.T @ (sample @ basis))
    order = scale.diagonal().abs().argsort(descending=True)[:_NUM_NEUTRAL_DIRECTIONS]
    return basis[:, order]
