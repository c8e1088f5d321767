"""Decides who takes part in the next step: decoding sequences always, then chunks of waiting prompts, in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from worker.decode.controller import DecodeState
from worker.engine.batch import Piece
from worker.engine.kv import KVUsage, SlotTable
from worker.engine.request import EngineEvent, GenerationRequest
from worker.errors import ContextTooLongError, RequestError


@dataclass(slots=True, eq=False)
class Sequence:
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
    def is_exclusive(self) -> bool:
        return self.request.is_exclusive

    def decode_piece(self) -> Piece:
        return Piece(self.slot, self.num_cached, (self.last_id,), wants_logits=True)

    def prefill_piece(self, max_tokens: int) -> Piece:
        prompt = self.request.prompt_ids
        end = min(len(prompt), self.num_cached + max_tokens)
        return Piece(
            self.slot, self.num_cached, prompt[self.num_cached : end], wants_logits=end == len(prompt)
        )


@dataclass(frozen=True, slots=True)
class StepPlan:
    """The pieces of one step and whose they are. Those that want logits keep this order."""

    sequences: tuple[Sequence, ...]
    pieces: tuple[Piece, ...]


@dataclass(slots=True)
class Scheduler:
    """First come, first served. A slot holds any request that was let in, so none is ever put out again."""

    slots: SlotTable
    prefill_chunk: int
    """Prompt tokens in one step; bounds how long the decoding sequences wait for it."""
    waiting: deque[Sequence] = field(default_factory=deque)
    running: list[Sequence] = field(default_factory=list)

    @property
    def has_work(self) -> bool:
        return bool(self.running or self.waiting)

    def check(self, request: GenerationRequest) -> None:
        """Raise RequestError where the request could never run, however long it waited."""
        num_prompt, limit = len(request.prompt_ids), self.slots.slot_tokens
        if num_prompt == 0:
            raise RequestError("the prompt is empty; give at least one token", param="prompt")
        if request.sampling.max_tokens < 1:
            raise RequestError("max_tokens must be at least 1", param="max_tokens")
        if num_prompt >= limit:
            raise ContextTooLongError(
                f"the prompt has {num_prompt} tokens, but prompt and completion together may have {limit}; "
                "shorten the messages"
            )

    def plan(self) -> StepPlan:
        """Let in whom there is room for, and choose the next step's pieces."""
        self._admit()
        decoding = sorted((s for s in self.running if not s.is_prefilling), key=lambda s: s.slot)
        sequences, pieces = list(decoding), [s.decode_piece() for s in decoding]
        budget = self.prefill_chunk
        for sequence in self.running:  # in the order of arrival
            if budget and sequence.is_prefilling:
                piece = sequence.prefill_piece(budget)
                budget -= len(piece.token_ids)
                sequences.append(sequence)
                pieces.append(piece)
        return StepPlan(tuple(sequences), tuple(pieces))

    def remove(self, sequence: Sequence) -> None:
        """Forget a sequence, waiting or running, and free its slot."""
        if sequence.slot < 0:
            self.waiting.remove(sequence)
            return
        self.running.remove(sequence)
        self.slots.release(sequence.slot)
        sequence.slot = -1

    def advance(self, plan: StepPlan) -> None:
        """Take in that the plan's pieces are in the cache."""
        for sequence, piece in zip(plan.sequences, plan.pieces, strict=True):
            sequence.num_cached = piece.end
            self.slots.grow(sequence.slot, piece.end)

    def usage(self) -> KVUsage:
        return self.slots.usage()

    def _admit(self) -> None:
        while self.waiting and self.slots.has_free and self._may_join(self.waiting[0]):
            sequence = self.waiting.popleft()
            sequence.slot = self.slots.acquire()
            self.running.append(sequence)

    def _may_join(self, sequence: Sequence) -> bool:
        if not self.running:
            return True
        return not (sequence.is_exclusive or self.running[0].is_exclusive)
