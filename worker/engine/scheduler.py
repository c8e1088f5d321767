"""Decides who takes part in the next step: whoever is decoding always, then chunks of prompts in turn."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from worker.decode.controller import DecodeState
from worker.engine.batch import Piece
from worker.engine.kv import KVUsage, SlotTable
from worker.engine.request import EngineEvent, GenerationRequest


@dataclass(slots=True, eq=False)
class ActiveRequest:
    """One request while it waits or runs."""

    request: GenerationRequest
    state: DecodeState
    emit: Callable[[EngineEvent], None]
    slot: int = -1
    """-1 while it waits."""
    num_cached: int = 0
    """Tokens whose keys and values are in the slot."""
    last_id: int = -1
    """The token emitted last; it is the next step's input."""
    num_emitted: int = 0

    @property
    def is_prefilling(self) -> bool:
        return self.num_cached < len(self.request.prompt_ids)

    @property
    def num_tokens(self) -> int:
        """Prompt and completion together."""
        return len(self.request.prompt_ids) + self.num_emitted

    def decode_piece(self) -> Piece:
        return Piece(self.slot, self.num_cached, (self.last_id,), num_logits=1)

    def prefill_piece(self, max_tokens: int) -> Piece:
        prompt = self.request.prompt_ids
        end = min(len(prompt), self.num_cached + max_tokens)
        chunk = prompt[self.num_cached : end]
        return Piece(self.slot, self.num_cached, chunk, num_logits=int(end == len(prompt)))


@dataclass(frozen=True, slots=True)
class StepPlan:
    """The pieces of one step and whose they are."""

    active: tuple[ActiveRequest, ...]
    pieces: tuple[Piece, ...]

    @property
    def sampled(self) -> list[ActiveRequest]:
        """Those that get a token in this step, in the order of the logits."""
        return [active for active, piece in zip(self.active, self.pieces, strict=True) if piece.num_logits]


class Scheduler:
    """First come, first served. A slot holds any request that was let in, so none is ever put out again."""

    def __init__(self, slots: SlotTable, prefill_chunk: int) -> None:
        self.waiting: deque[ActiveRequest] = deque()
        self.running: list[ActiveRequest] = []
        """In the order of arrival."""
        self._slots = slots
        self._prefill_chunk = prefill_chunk

    @property
    def has_work(self) -> bool:
        return bool(self.running or self.waiting)

    def plan(self) -> StepPlan:
        """Let in whom there is room for, and choose the next step's pieces.

        All decoding requests advance; beside them at most ``prefill_chunk`` prompt tokens are read, which
        bounds how long a step keeps them.
        """
        self._admit()
        decoding = sorted((a for a in self.running if not a.is_prefilling), key=lambda a: a.slot)
        chosen = [(active, active.decode_piece()) for active in decoding]
        budget = self._prefill_chunk
        for active in self.running:
            if budget and active.is_prefilling:
                piece = active.prefill_piece(budget)
                budget -= len(piece.token_ids)
                chosen.append((active, piece))
        return StepPlan(tuple(active for active, _ in chosen), tuple(piece for _, piece in chosen))

    def advance(self, plan: StepPlan) -> None:
        """Take in that the plan's pieces are in the cache."""
        for active, piece in zip(plan.active, plan.pieces, strict=True):
            active.num_cached = piece.end
            self._slots.grow(active.slot, piece.end)

    def remove(self, active: ActiveRequest) -> None:
        """Forget a request, waiting or running, and free its slot."""
        if active.slot < 0:
            self.waiting.remove(active)
            return
        self.running.remove(active)
        self._slots.release(active.slot)
        active.slot = -1

    def usage(self) -> KVUsage:
        return self._slots.usage()

    def _admit(self) -> None:
        while self.waiting and self._slots.has_free and _may_join(self.waiting[0], self.running):
            active = self.waiting.popleft()
            active.slot = self._slots.acquire()
            self.running.append(active)


def _may_join(active: ActiveRequest, running: Sequence[ActiveRequest]) -> bool:
    if not running:
        return True
    return not (active.request.is_exclusive or running[0].request.is_exclusive)
