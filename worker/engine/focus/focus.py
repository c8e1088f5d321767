"""What one request remembers of its text to tell which blocks of it still matter."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from worker.engine.focus.kept_rows import KeptRows
from worker.protocol import KVBlockControls
from worker.thermo.adaptive import smooth
from worker.thermo.blocks import (
    BLOCK_TOKENS,
    BlockMask,
    FloatRow,
    GuardRails,
    block_scores,
    kept_blocks,
    threshold,
)
from worker.thermo.entropy import quantise_entropy


class Focus:
    """Surprisals and smoothed attention by position, the smoothed H, and which blocks are kept for it.

    The request's own. It outlives a slot: after a preemption the text is read again, and looked at again.
    """

    def __init__(self, controls: KVBlockControls) -> None:
        self.controls = controls
        self._rows: KeptRows | None = None
        self._is_copied = False
        self._kept: tuple[int, ...] = ()
        self._num_dropped = 0
        self._num_steps_since = 0
        self._surprisals: FloatRow = np.zeros(0, np.float32)
        self._attention: FloatRow = np.zeros(0, np.float32)
        self._entropy_nats = 0.0
        self._has_begun = False

    @property
    def weighs_surprisal(self) -> bool:
        """Whether it wants to be told how surprising each token of the prompt is."""
        return self.controls.score == "surprisal"

    @property
    def is_look_due(self) -> bool:
        """Whether the next step looks at the whole text again."""
        return self._num_steps_since + 1 >= self.controls.look_every

    @property
    def is_narrow(self) -> bool:
        """Whether anything is dropped. Nothing is where H is so high that the threshold is 0."""
        return self._num_dropped > 0 and self._entropy_nats < self.controls.reference_nats

    def rows(self, make: Callable[[], KeptRows]) -> KeptRows:
        """Return the copy that a narrow step attends to, made where there is none. Raises MemoryError."""
        if self._rows is None:
            self._rows = make()
        if not self._is_copied:
            # Behind the last full block comes one that is being written, and the steps up to the next look.
            self._rows.fill(self._kept, BLOCK_TOKENS + self.controls.look_every)
            self._is_copied = True
        return self._rows

    def leave_slot(self) -> None:
        """Forget the copy: the text is being read into a slot."""
        self._rows = None
        self._is_copied = False

    def kept_share(self, num_tokens: int) -> float:
        """Return the share of the text's blocks that a narrow step attends to."""
        return 1.0 - self._num_dropped / -(-num_tokens // BLOCK_TOKENS)

    def tell(self, start: int, surprisals_nats: Sequence[float] | FloatRow) -> None:
        """Take in the -ln p that the tokens from position ``start`` on were read or written with.

        Tokens that nobody tells about count as no surprise: the first, and what the prefix cache had.
        """
        end = start + len(surprisals_nats)
        self._make_room(end)
        self._surprisals[start:end] = surprisals_nats

    def surprisals(self, num_tokens: int) -> FloatRow:
        """Return what was told of the first tokens; 1 each where all count alike."""
        if not self.weighs_surprisal:
            return np.ones(num_tokens, np.float32)
        self._make_room(num_tokens)
        return self._surprisals[:num_tokens]

    def take(self, entropy_nats: float) -> None:
        """Take in the H of a step."""
        previous = self._entropy_nats if self._has_begun else None
        self._entropy_nats = smooth(previous, quantise_entropy(entropy_nats), self.controls.smoothing)
        self._has_begun = True
        self._num_steps_since += 1

    def look(self, attention: FloatRow, num_shared_tokens: int) -> None:
        """Take in what every token of the text is given now, [tokens], and choose the blocks anew."""
        num_tokens = len(attention)
        self._attention = self._smoothed(attention)
        self._num_steps_since = 0
        kept = self._chosen(num_tokens, GuardRails(num_shared_tokens, self.controls.min_blocks))
        self._num_dropped = int((~kept).sum())
        self._kept = tuple(np.flatnonzero(kept[: num_tokens // BLOCK_TOKENS]).tolist())
        self._is_copied = False

    def _make_room(self, num_tokens: int) -> None:
        if num_tokens > len(self._surprisals):
            self._surprisals = np.pad(self._surprisals, (0, 2 * num_tokens - len(self._surprisals)))

    def _chosen(self, num_tokens: int, rails: GuardRails) -> BlockMask:
        scores = block_scores(self._attention, self.surprisals(num_tokens))
        theta = threshold(self.controls.threshold, self._entropy_nats, self.controls.reference_nats)
        return kept_blocks(scores, theta, num_tokens, rails)

    def _smoothed(self, attention: FloatRow) -> FloatRow:
        """Tokens that are new begin with what they are given first."""
        mean = attention.copy()
        num_known = min(len(self._attention), len(attention))
        weight = self.controls.attention_smoothing
        mean[:num_known] += weight * (self._attention[:num_known] - attention[:num_known])
        return mean
