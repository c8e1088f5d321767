"""Decides who takes part in the next step: whoever is decoding always, then chunks of prompts in turn."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from worker.engine.active import ActiveRequest
from worker.engine.batch import Piece
from worker.engine.policy import Policy
from worker.engine.prefix import BLOCK_TOKENS
from worker.engine.sequences import SequenceMemory


@dataclass(frozen=True, slots=True)
class StepPlan:
    """The pieces of one step and whose they are."""

    active: tuple[ActiveRequest, ...]
    pieces: tuple[Piece, ...]

    @property
    def sampled(self) -> list[tuple[ActiveRequest, Piece]]:
        """Those that get a token in this step, in the order of the logits."""
        pairs = zip(self.active, self.pieces, strict=True)
        return [(active, piece) for active, piece in pairs if piece.num_drawn]


class Scheduler:
    """Lets requests in by a policy, and puts the least urgent out again where memory is too small for all.

    Who is put out forgets its keys and values and goes on later from the same text, which is read again.
    """

    def __init__(
        self,
        memory: SequenceMemory,
        policy: Policy,
        prefill_chunk: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.waiting: list[ActiveRequest] = []
        self.running: list[ActiveRequest] = []
        """In the order in which they were let in."""
        self.num_preemptions = 0
        self._memory = memory
        self._policy = policy
        self._prefill_chunk = prefill_chunk
        self._clock = clock
        self._num_arrivals = 0

    @property
    def has_work(self) -> bool:
        return bool(self.running or self.waiting)

    def add(self, active: ActiveRequest) -> None:
        """Let a request wait."""
        active.number, active.arrived_s = self._num_arrivals, self._clock()
        self._num_arrivals += 1
        self.waiting.append(active)

    def plan(self) -> StepPlan:
        """Let in whom there is room for, and choose the next step's pieces.

        All decoding requests advance; beside them at most ``prefill_chunk`` prompt tokens are read, which
        bounds how long a step keeps them.
        """
        self._admit()
        self._make_room()
        decoding = sorted((a for a in self.running if not a.is_prefilling), key=lambda a: a.slot)
        chosen = [(active, active.decode_piece()) for active in decoding]
        budget = self._prefill_chunk
        reading = [active for active in self.running if active.is_prefilling]
        for active in self._policy.ordered(reading, self._clock()) if len(reading) > 1 else reading:
            if budget:
                piece = active.prefill_piece(budget)
                budget -= len(piece.token_ids)
                chosen.append((active, piece))
        return StepPlan(tuple(active for active, _ in chosen), tuple(piece for _, piece in chosen))

    def advance(self, plan: StepPlan) -> None:
        """Take in that the plan's pieces are in the cache, and keep the prompts' blocks for others."""
        for active, piece in zip(plan.active, plan.pieces, strict=True):
            was_reading = active.is_prefilling
            self._memory.advance(active, piece.end)
            if was_reading:
                self._memory.share(active, min(piece.end, len(active.request.prompt_ids)))

    def finish(self, active: ActiveRequest) -> None:
        """A running request has ended of itself: its text is kept for whoever goes on from it."""
        self._policy.observe(active)
        self._memory.share(active, active.num_cached)
        self.remove(active)

    def remove(self, active: ActiveRequest) -> None:
        """Forget a request, waiting or running, and free its slot."""
        if active.slot < 0:
            self.waiting.remove(active)
            return
        self.running.remove(active)
        self._memory.close(active)

    def _admit(self) -> None:
        if not (self.waiting and self._memory.has_slot):
            return
        for active in self._policy.ordered(self.waiting, self._clock()):
            if not (self._memory.has_slot and self._fits(active) and _may_join(active, self.running)):
                return  # nobody overtakes whom there is no room for: the large would never come in
            if self._is_being_read(active):
                continue
            self.waiting.remove(active)
            self._memory.open(active)
            self.running.append(active)

    def _fits(self, active: ActiveRequest) -> bool:
        """Whether the whole texts of all, and a token more for each, have room. One alone always fits."""
        taken = sum(each.num_tokens + 1 for each in self.running)
        return not self.running or taken + active.num_tokens + 1 <= self._memory.max_tokens

    def _is_being_read(self, active: ActiveRequest) -> bool:
        """Whether a running prompt that begins alike is being read: what it has in common is known soon."""
        if not active.shares_blocks:
            return False
        readers = [each for each in self.running if each.is_prefilling and each.shares_blocks]
        if not readers:
            return False
        own = active.block_digests(active.num_tokens - 1)
        num_known = self._memory.would_find(active) // BLOCK_TOKENS
        return any(_num_common(own, each.block_digests(each.num_tokens)) > num_known for each in readers)

    def _make_room(self) -> None:
        """Put out the least urgent until the next tokens of all have room."""
        while len(self.running) > 1:
            needed = sum(each.num_tokens + 1 for each in self.running)
            if needed <= self._memory.max_tokens:
                return
            victim = self._policy.victim(self.running, self._clock())
            self.running.remove(victim)
            self._memory.share(victim, victim.num_cached)
            self._memory.close(victim)
            self.waiting.append(victim)
            self.num_preemptions += 1


def _may_join(active: ActiveRequest, running: Sequence[ActiveRequest]) -> bool:
    if not running:
        return True
    return not (active.request.is_exclusive or running[0].request.is_exclusive)


def _num_common(one: Sequence[bytes], other: Sequence[bytes]) -> int:
    return next(
        (n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )
