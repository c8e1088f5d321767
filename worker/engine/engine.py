"""The decoding loop's one step: plan -> forward -> decide -> emit."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence as Rows
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from worker.decode.controller import Decision, DecodeState, RowFailure, StepContext
from worker.engine.kv import SlotTable
from worker.engine.model import LanguageModel
from worker.engine.request import EngineEvent, FinishReason, GenerationRequest, RequestFailed, StepOutput
from worker.engine.scheduler import Scheduler, Sequence, StepPlan

log = logging.getLogger(__name__)

Emit = Callable[[EngineEvent], None]


class DecidesTokens(Protocol):
    """What the engine asks of a decider."""

    def open(self, request: GenerationRequest) -> DecodeState: ...

    def decide(
        self, logits: Tensor, states: Rows[DecodeState], step: StepContext
    ) -> list[Decision | RowFailure]: ...


@dataclass(frozen=True, slots=True)
class EngineStats:
    """Counts since the start, and levels now. KV in tokens."""

    running: int
    waiting: int
    kv_used: int
    kv_total: int
    steps: int
    tokens: int


class Engine:
    """A running batch that requests join and leave between steps. Not thread-safe; see ``loop.py``."""

    def __init__(
        self, model: LanguageModel, decider: DecidesTokens, eos_ids: frozenset[int], prefill_chunk: int
    ) -> None:
        self._model = model
        self._decider = decider
        self._eos_ids = eos_ids
        self._scheduler = Scheduler(SlotTable(model.num_slots, model.max_context), prefill_chunk)
        self._sequences: dict[str, Sequence] = {}
        self._num_steps = 0
        self._num_tokens = 0

    @property
    def has_work(self) -> bool:
        return self._scheduler.has_work

    def open(self, request: GenerationRequest) -> DecodeState:
        """Check a request and compile its controls. Raises RequestError. May run on any thread."""
        self._scheduler.check(request)
        return self._decider.open(request)

    def submit(self, request: GenerationRequest, state: DecodeState, emit: Emit) -> None:
        """Put a request at the end of the queue."""
        sequence = Sequence(request, state, emit)
        self._sequences[request.id] = sequence
        self._scheduler.waiting.append(sequence)

    def cancel(self, request_id: str) -> None:
        """Forget a request and free its slot. Does nothing where there is none."""
        sequence = self._sequences.get(request_id)
        if sequence is not None:
            self._leave(sequence)

    def step(self) -> None:
        """Advance every running sequence by one token or one chunk of its prompt."""
        plan = self._scheduler.plan()
        logits = self._forward(plan)
        if logits is None:
            return
        for sequence, decision in self._decide(plan, logits):
            self._emit(sequence, decision)

    def stats(self) -> EngineStats:
        usage = self._scheduler.usage()
        return EngineStats(
            running=len(self._scheduler.running),
            waiting=len(self._scheduler.waiting),
            kv_used=usage.used_tokens,
            kv_total=usage.total_tokens,
            steps=self._num_steps,
            tokens=self._num_tokens,
        )

    def _forward(self, plan: StepPlan) -> Tensor | None:
        """Run the model. Where it fails, its requests fail with it, and the engine lives on."""
        try:
            logits = self._model.forward(plan.pieces)
        except Exception as error:
            log.exception("a forward pass failed")
            for sequence in plan.sequences:
                self._fail(sequence, f"the model failed: {error}")
            return None
        self._scheduler.advance(plan)
        return logits

    def _decide(self, plan: StepPlan, logits: Tensor) -> list[tuple[Sequence, Decision | RowFailure]]:
        sampled = [s for s, piece in zip(plan.sequences, plan.pieces, strict=True) if piece.wants_logits]
        if not sampled:
            return []
        self._num_steps += 1
        context = StepContext(self._num_steps, len(sampled))
        decisions = self._decider.decide(logits, [s.state for s in sampled], context)
        return list(zip(sampled, decisions, strict=True))

    def _emit(self, sequence: Sequence, decision: Decision | RowFailure) -> None:
        if isinstance(decision, RowFailure):
            self._fail(sequence, decision.message)
            return
        self._num_tokens += 1
        sequence.num_emitted += 1
        sequence.last_id = decision.token_id
        reason = self._finish_reason(sequence)
        output = StepOutput(
            sequence.request.id, decision.token_id, decision.record, decision.top_logprobs, reason
        )
        if reason is not None:
            self._leave(sequence)
        sequence.emit(output)

    def _finish_reason(self, sequence: Sequence) -> FinishReason | None:
        request, token_id = sequence.request, sequence.last_id
        if request.forced_ids:
            # A recorded text ends where its record ends, whatever ended it then.
            return "length" if sequence.num_emitted >= len(request.forced_ids) else None
        sampling = request.sampling
        if token_id in sampling.stop_token_ids or (token_id in self._eos_ids and not sampling.ignore_eos):
            return "stop"
        is_full = sequence.num_cached >= self._model.max_context
        return "length" if is_full or sequence.num_emitted >= sampling.max_tokens else None

    def _fail(self, sequence: Sequence, message: str) -> None:
        self._leave(sequence)
        sequence.emit(RequestFailed(sequence.request.id, message))

    def _leave(self, sequence: Sequence) -> None:
        del self._sequences[sequence.request.id]
        if sequence.slot >= 0:
            self._model.clear(sequence.slot, sequence.num_cached)
        self._scheduler.remove(sequence)
