"""Which blocks of keys and values a step attends to, by attention and surprisal, and by H."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

BLOCK_TOKENS = 16
RECENT_TOKENS = 64
"""The last tokens are never dropped."""

FloatRow = NDArray[np.float32]
BlockMask = NDArray[np.bool_]
"""[blocks]; the last block may be one that is being written."""


@dataclass(frozen=True, slots=True)
class GuardRails:
    """What is kept whatever it scores."""

    num_shared_tokens: int = 0
    """Of the beginning: its blocks came from the prefix cache."""
    min_blocks: int = 1
    """B_min, guarded blocks counted; it wins over the threshold."""

    def kept(self, num_tokens: int) -> BlockMask:
        """Return the blocks that may not be dropped: the first, the shared, those of the last 64 tokens.

        The block being written is among the last.
        """
        starts = np.arange(-(-num_tokens // BLOCK_TOKENS)) * BLOCK_TOKENS
        is_recent = starts + BLOCK_TOKENS > num_tokens - RECENT_TOKENS
        guarded: BlockMask = (starts == 0) | (starts < self.num_shared_tokens) | is_recent
        return guarded


def block_scores(attention: FloatRow, surprisals_nats: FloatRow) -> FloatRow:
    """Return I_b = sum over the tokens i of block b of a_i * I(v_i), [blocks].

    ``attention`` is the smoothed mean over heads of what each token is given, ``surprisals_nats`` the
    -ln p that it was read or written with; both [tokens].
    """
    weighed = attention * surprisals_nats
    return np.add.reduceat(weighed, np.arange(0, len(weighed), BLOCK_TOKENS))


def threshold(theta_0: float, smoothed_entropy_nats: float, reference_nats: float) -> float:
    """Return theta = theta_0 * clip((H_ref - e) / H_ref, 0, 1).

    It rises as H falls: what is sure needs less.
    """
    share = (reference_nats - smoothed_entropy_nats) / reference_nats
    return theta_0 * min(max(share, 0.0), 1.0)


def kept_blocks(scores: FloatRow, theta: float, num_tokens: int, rails: GuardRails) -> BlockMask:
    """Return which blocks are kept: those whose score reaches ``theta``, and what the rails guard.

    ``theta`` is in units of the mean score of the blocks that no rail guards, so that it means the same at
    any length. Where fewer than B_min are left, the best of the others join them, the later one of equals.
    """
    guarded = rails.kept(num_tokens)
    free = np.flatnonzero(~guarded)
    if not len(free):
        return guarded
    reaches = scores[free] >= theta * scores[free].mean()
    num_kept = max(int(reaches.sum()), min(rails.min_blocks - int(guarded.sum()), len(free)))
    best_first = free[np.lexsort((-free, -scores[free]))]
    kept = guarded.copy()
    kept[best_first[: max(num_kept, 0)]] = True
    return kept
