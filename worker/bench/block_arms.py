"""Other ways of choosing as many blocks, put in the place of ours."""

from __future__ import annotations

import math
from abc import abstractmethod

import numpy as np

from worker.engine.focus.focus import Focus
from worker.protocol import KVBlockControls
from worker.thermo.blocks import BLOCK_TOKENS, BlockMask, FloatRow, GuardRails, block_scores, kept_blocks


class FixedFocus(Focus):
    """Keeps the same share of blocks at every step, whatever H is; guard rails as ours."""

    def __init__(self, controls: KVBlockControls, share: float) -> None:
        super().__init__(controls)
        self._share = share

    @property
    def is_narrow(self) -> bool:
        return self._num_dropped > 0

    @abstractmethod
    def _ranking(self, num_tokens: int) -> FloatRow:
        """Return what decides which blocks are kept, the largest first."""

    def _chosen(self, num_tokens: int, rails: GuardRails) -> BlockMask:
        num_blocks = round(self._share * math.ceil(num_tokens / BLOCK_TOKENS))
        rails = GuardRails(rails.num_shared_tokens, max(1, num_blocks))
        return kept_blocks(self._ranking(num_tokens), math.inf, num_tokens, rails)


class EvenFocus(FixedFocus):
    """Our scores without the threshold by entropy."""

    def _ranking(self, num_tokens: int) -> FloatRow:
        return block_scores(self._attention, self.surprisals(num_tokens))


class AttentionFocus(FixedFocus):
    """Attention alone, without surprisal."""

    def _ranking(self, num_tokens: int) -> FloatRow:
        return block_scores(self._attention, np.ones(num_tokens, np.float32))


class BlindFocus(FixedFocus):
    """Never looks at the text, and chooses anew as often as ours looks."""

    def __init__(self, controls: KVBlockControls, share: float) -> None:
        super().__init__(controls, share)
        self._num_tokens = 0

    @property
    def is_look_due(self) -> bool:
        return False

    def look(self, attention: FloatRow, num_shared_tokens: int) -> None:
        self._num_tokens = len(attention)
        super().look(attention, num_shared_tokens)

    def take(self, entropy_nats: float) -> None:
        super().take(entropy_nats)
        self._num_tokens += 1
        if self._num_steps_since >= self.controls.look_every:
            self.look(np.zeros(self._num_tokens, np.float32), 0)


class RecentFocus(BlindFocus):
    """The first block and the last ones, as StreamingLLM keeps them."""

    def _ranking(self, num_tokens: int) -> FloatRow:
        return np.arange(1, 1 + math.ceil(num_tokens / BLOCK_TOKENS), dtype=np.float32)


class RandomFocus(BlindFocus):
    """Any blocks, beside those that are guarded."""

    def __init__(self, controls: KVBlockControls, share: float) -> None:
        super().__init__(controls, share)
        self._generator = np.random.default_rng(0)

    def _ranking(self, num_tokens: int) -> FloatRow:
        return self._generator.random(math.ceil(num_tokens / BLOCK_TOKENS), np.float32)
