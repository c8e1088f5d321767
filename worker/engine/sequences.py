"""The memory of running requests: a slot each, a bound on all tokens together, and blocks kept for others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from worker.engine.active import ActiveRequest
from worker.engine.kv import SlotTable
from worker.engine.model import LanguageModel
from worker.engine.prefix import BLOCK_TOKENS, PrefixCache


@dataclass(frozen=True, slots=True)
class MemoryUsage:
    """How full the memory is, in tokens and blocks; the last three only grow."""

    used_tokens: int
    total_tokens: int
    prefix_blocks: int
    prefix_blocks_held: int
    prefix_blocks_total: int
    prefix_tokens_asked: int
    """Tokens of admitted prompts."""
    prefix_tokens_found: int
    """Of these, what did not have to be computed."""


class SequenceMemory:
    """Gives out slots and copies shared beginnings. What is cached of a request is known here alone."""

    def __init__(self, model: LanguageModel, max_tokens: int | None = None) -> None:
        """``max_tokens`` bounds what all slots hold together; by default all of them may be full."""
        self._model = model
        self._slots = SlotTable(model.num_slots, model.max_context)
        everything = model.num_slots * model.max_context
        self.max_tokens = everything if max_tokens is None else min(max_tokens, everything)
        self._prefix = PrefixCache(model.num_blocks)
        self._num_asked = 0
        self._num_found = 0

    @property
    def has_slot(self) -> bool:
        return self._slots.has_free

    def open(self, active: ActiveRequest) -> None:
        """Give a request a slot and whatever is known of the beginning of its text."""
        active.slot = self._slots.acquire()
        active.num_cached = active.num_written = 0
        if not active.num_emitted:
            self._num_asked += active.num_tokens
        if not active.shares_blocks:
            return
        # The last token is always computed: its logits are what is wanted.
        active.held_blocks = self._prefix.find(active.block_digests(active.num_tokens - 1))
        if active.held_blocks:
            self._model.load_blocks(active.held_blocks, active.slot)
            self.advance(active, len(active.held_blocks) * BLOCK_TOKENS)
        if not active.num_emitted:
            active.num_found = active.num_cached
            self._num_found += active.num_cached

    def advance(self, active: ActiveRequest, num_cached: int) -> None:
        """Take in that the slot now holds this many right tokens."""
        active.num_cached = num_cached
        active.num_written = max(active.num_written, num_cached)
        self._slots.grow(active.slot, num_cached)

    def share(self, active: ActiveRequest, num_tokens: int) -> None:
        """Keep the full blocks of the first ``num_tokens`` tokens for others, as far as there is room."""
        if not active.shares_blocks or not self._prefix.num_blocks:
            return
        num_tokens = min(num_tokens, active.num_shareable)
        num_before = len(active.held_blocks)
        new: list[tuple[int, int]] = []
        for digest in active.block_digests(num_tokens)[num_before:]:
            placed = self._prefix.place(digest)
            if placed is None:
                break
            block, is_new = placed
            active.held_blocks.append(block)
            if is_new:
                new.append((len(active.held_blocks) - 1, block))
        for first, blocks in _runs(new):
            self._model.save_blocks(active.slot, first, blocks)

    def close(self, active: ActiveRequest) -> None:
        """Free the slot. What was shared of it stays until its room is needed."""
        self._prefix.drop(active.held_blocks)
        active.held_blocks = []
        self._model.clear(active.slot, active.num_written)
        self._slots.release(active.slot)
        active.slot = -1
        active.num_cached = active.num_written = 0

    def would_find(self, active: ActiveRequest) -> int:
        """Return how many tokens of it are known now."""
        if not active.shares_blocks:
            return 0
        return BLOCK_TOKENS * self._prefix.count(active.block_digests(active.num_tokens - 1))

    def usage(self) -> MemoryUsage:
        return MemoryUsage(
            used_tokens=self._slots.usage().used_tokens,
            total_tokens=self.max_tokens,
            prefix_blocks=self._prefix.num_used,
            prefix_blocks_held=self._prefix.num_held,
            prefix_blocks_total=self._prefix.num_blocks,
            prefix_tokens_asked=self._num_asked,
            prefix_tokens_found=self._num_found,
        )


def _runs(placed: Iterable[tuple[int, int]]) -> Iterator[tuple[int, list[int]]]:
    """Join (number in the text, block) into runs: the number of each run's first, and its blocks."""
    first, blocks = 0, list[int]()
    for number, block in placed:
        if blocks and number != first + len(blocks):
            yield first, blocks
            blocks = []
        if not blocks:
            first = number
        blocks.append(block)
    if blocks:
        yield first, blocks
