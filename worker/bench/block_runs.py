"""Every arm on one context, from one cache."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from worker.bench.block_contexts import Context, Needle
from worker.bench.block_figures import Run
from worker.bench.block_reading import Bench, Reading
from worker.engine.focus.attention import WINDOW
from worker.engine.focus.focus import Focus
from worker.engine.focus.keeper import BlockKeeper
from worker.engine.prefix import BLOCK_TOKENS
from worker.protocol import KVBlockControls

DENSE_EVERY = 8
"""Steps of an arm between two that attend to everything, which it is timed against."""


@dataclass(frozen=True, slots=True)
class Branch:
    """What an arm is told of a text that it is to be used on."""

    share: float
    """Of the blocks, on average over the steps."""
    num_steps: int


Arm: TypeAlias = Callable[[Branch], tuple[BlockKeeper, Focus | None]]
"""Begins to choose blocks of the text in slot 0."""


class ContextRuns:
    """Reads a context once into slot 0, and a copy into slot 1 for the steps that attend to everything."""

    def __init__(self, bench: Bench, context: Context) -> None:
        self._bench = bench
        self._context = context
        model, keeper = bench.model, BlockKeeper(bench.model)
        focus = Focus(KVBlockControls())
        first = Reading(bench, keeper, context.token_ids)
        first.begin(focus, 0)
        # The end, which is looked at, is read by every arm for itself.
        self._num_cached = (len(context.token_ids) - WINDOW) // BLOCK_TOKENS * BLOCK_TOKENS
        self.read_told_s = first.read(self._num_cached)
        self._surprisals = focus.surprisals(self._num_cached + 1).copy()
        blocks = range(self._num_cached // BLOCK_TOKENS)
        model.save_blocks(0, 0, blocks)
        model.load_blocks(blocks, 1)
        self._dense = Reading(bench, keeper, context.token_ids, context.continuation_ids, slot=1)
        self._dense.begin(None, self._num_cached)
        self._dense.read(len(context.token_ids))

    def read_plainly_s(self) -> float:
        """Return the CPU seconds of reading as much as was read at first, without being told surprisals."""
        plain = Reading(self._bench, BlockKeeper(self._bench.model), self._context.token_ids)
        plain.begin(None, 0)
        return plain.read(self._num_cached)

    def run(self, arm: Arm, share: float, needle_share: float) -> Run:
        """Write the continuation and ask for the needles, attending to these shares of the blocks."""
        shares, nats, ratio = self._continue(arm, share)
        asked = [self._ask(arm, needle, needle_share) for needle in self._context.needles]
        return Run(
            share=shares,
            nats_per_token=nats,
            step_ratio=ratio,
            needle_share=float(np.mean([each[0] for each in asked])),
            num_chosen=sum(is_chosen for _, is_chosen, _ in asked),
            num_written=sum(is_written for _, _, is_written in asked),
            num_needles=len(asked),
        )

    def _continue(self, arm: Arm, share: float) -> tuple[float, float, float]:
        """Return share, nats a token and the ratio of CPU times."""
        continuation = self._context.continuation_ids
        num_steps = len(continuation) - 1  # the first token follows from the prompt, which all read whole
        reading = self._begin(arm, Branch(share, num_steps), self._context.token_ids, continuation)
        shares, nats, spent_s, dense_s = [], [], [], []
        for number in range(num_steps):
            decision, step_s = reading.write()
            shares.append(decision.record.kept_share)
            nats.append(-decision.record.logprob)
            spent_s.append(step_s)
            if number % DENSE_EVERY == 0:
                dense_s.append(self._dense.again_s())
        told = float(np.mean(shares)) if reading.active.focus is not None else share
        return told, float(np.mean(nats)), float(np.mean(dense_s) / np.mean(spent_s))

    def _ask(self, arm: Arm, needle: Needle, share: float) -> tuple[float, bool, bool]:
        """Return share, and whether the word is the likeliest of the candidates, and of all tokens."""
        prompt = (*self._context.token_ids, *needle.question_ids)
        num_steps = len(needle.opening_ids)
        reading = self._begin(arm, Branch(share, num_steps), prompt, (*needle.opening_ids, needle.word_id))
        shares = [reading.write()[0].record.kept_share for _ in range(num_steps)]
        logits = reading.logits[-1].float()
        candidates = self._context.candidate_ids
        chosen = candidates[int(logits[list(candidates)].argmax())]
        told = float(np.mean(shares)) if reading.active.focus is not None else share
        return told, chosen == needle.word_id, int(logits.argmax()) == needle.word_id

    def _begin(self, arm: Arm, branch: Branch, prompt: tuple[int, ...], recorded: tuple[int, ...]) -> Reading:
        keeper, focus = arm(branch)
        if focus is not None:
            focus.tell(0, self._surprisals)
        reading = Reading(self._bench, keeper, prompt, recorded)
        reading.begin(focus, self._num_cached)
        reading.read(len(prompt))
        return reading
