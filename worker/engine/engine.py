"""The decoding loop's one step: plan -> forward -> decide -> emit."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Protocol, TypeAlias

from torch import Tensor

from worker.decode.controller import Decision, DecodeState, RowFailure, StepContext
from worker.engine.active import ActiveRequest
from worker.engine.admission import check_fits
from worker.engine.batch import Piece
from worker.engine.focus.keeper import BlockKeeper
from worker.engine.model import LanguageModel
from worker.engine.policy import PolicyName, make_policy
from worker.engine.request import EngineEvent, FinishReason, GenerationRequest, RequestFailed, StepOutput
from worker.engine.scheduler import Scheduler, StepPlan
from worker.engine.sequences import SequenceMemory
from worker.engine.speculation.speculator import Speculator

log = logging.getLogger(__name__)

Emit = Callable[[EngineEvent], None]
Decided: TypeAlias = tuple[Decision | RowFailure, ...]
"""What one request gets of a step, in order; a failure comes last."""


class DecidesTokens(Protocol):
    """What the engine asks of a decider."""

    def open(self, request: GenerationRequest) -> DecodeState: ...

    def decide(
        self, logits: Tensor, states: Sequence[DecodeState], step: StepContext
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
    preemptions: int
    prefix_blocks: int
    prefix_blocks_held: int
    """Of these, those that running sequences share."""
    prefix_blocks_total: int
    prefix_asked: int
    """Prompt tokens of admitted requests."""
    prefix_found: int
    """Of these, those that others had computed."""
    drafted: int
    """Tokens that were checked before it was known whether they come."""
    accepted: int
    """Of these, those that came."""


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """How an engine schedules."""

    prefill_chunk: int = 256
    policy: PolicyName = "fcfs"
    kv_tokens: int | None = None
    max_draft: int = 16
    """The most that is drafted for a request in one step; 0 drafts nothing."""


class Engine:
    """A running batch that requests join and leave between steps. Not thread-safe; see ``loop.py``."""

    def __init__(
        self, model: LanguageModel, decider: DecidesTokens, eos_ids: frozenset[int], options: EngineOptions
    ) -> None:
        self._model = model
        self._decider = decider
        self._eos_ids = eos_ids
        self._memory = SequenceMemory(model, options.kv_tokens)
        policy = make_policy(options.policy, model.max_context, model.vocab_size)
        self._scheduler = Scheduler(self._memory, policy, options.prefill_chunk)
        self._speculator = Speculator(model, self._memory.max_tokens, options.max_draft)
        self._keeper = BlockKeeper(model)
        self._active: dict[str, ActiveRequest] = {}
        self._num_steps = 0
        self._num_tokens = 0

    @property
    def has_work(self) -> bool:
        return self._scheduler.has_work

    def open(self, request: GenerationRequest) -> DecodeState:
        """Check a request and compile its controls. Raises RequestError. May run on any thread."""
        check_fits(request, self._model)
        return self._decider.open(request)

    def submit(self, request: GenerationRequest, state: DecodeState, emit: Emit) -> None:
        """Put a request at the end of the queue. One under an id that is in use fails."""
        active = ActiveRequest(request, state, emit, drafter=self._speculator.drafter(request))
        active.focus = self._keeper.focus(request)
        if request.id in self._active:
            self._deliver(active, RequestFailed(request.id, "a request with this id is running"))
            return
        self._active[request.id] = active
        self._scheduler.add(active)

    def cancel(self, request_id: str) -> None:
        """Forget a request and free its slot. Does nothing where there is none."""
        active = self._active.get(request_id)
        if active is not None:
            self._leave(active)

    def step(self) -> None:
        """Advance every running request by a token and what was drafted rightly, or a chunk of its prompt."""
        plan = self._speculator.with_drafts(self._scheduler.plan(), self._scheduler.running)
        try:
            plan = self._keeper.with_views(plan)
            logits = self._model.forward(plan.pieces)
            decisions = self._keeper.learn(plan, logits, self._decide(plan, logits))
        except Exception as error:
            log.exception("a step failed, and with it the requests that took part")
            self._fail_all(plan, error)
            return
        self._scheduler.advance(self._speculator.without_rejected(plan, decisions))
        for active, decided in decisions.items():
            self._emit(active, decided)

    def stats(self) -> EngineStats:
        usage = self._memory.usage()
        return EngineStats(
            running=len(self._scheduler.running),
            waiting=len(self._scheduler.waiting),
            kv_used=usage.used_tokens,
            kv_total=usage.total_tokens,
            steps=self._num_steps,
            tokens=self._num_tokens,
            preemptions=self._scheduler.num_preemptions,
            prefix_blocks=usage.prefix_blocks,
            prefix_blocks_held=usage.prefix_blocks_held,
            prefix_blocks_total=usage.prefix_blocks_total,
            prefix_asked=usage.prefix_tokens_asked,
            prefix_found=usage.prefix_tokens_found,
            drafted=self._speculator.num_drafted,
            accepted=self._speculator.num_accepted,
        )

    def _decide(self, plan: StepPlan, logits: Tensor) -> dict[ActiveRequest, Decided]:
        """Decide everyone's first token together, then drafts position by position, as far as they hold."""
        sampled = plan.sampled
        if not sampled:  # nothing but chunks of prompts
            return {}
        self._num_steps += 1
        context = StepContext(self._num_steps, len(sampled))
        starts = accumulate((piece.num_logits for piece in plan.pieces), initial=0)
        first_rows = [
            row + piece.num_told for piece, row in zip(plan.pieces, starts, strict=False) if piece.num_drawn
        ]
        firsts = logits if len(sampled) == len(logits) else logits[first_rows]
        decisions = self._decider.decide(firsts, [active.state for active, _ in sampled], context)
        return {
            active: (decision,)
            if piece.num_drawn == 1
            else self._check_draft(active, piece, decision, logits[row + 1 :], context)
            for (active, piece), decision, row in zip(sampled, decisions, first_rows, strict=True)
        }

    def _check_draft(
        self,
        active: ActiveRequest,
        piece: Piece,
        first: Decision | RowFailure,
        logits: Tensor,
        step: StepContext,
    ) -> Decided:
        """Go on for as long as the token that is drawn is the drafted one; ``logits`` are those behind it.

        The state rolls forward with tokens that are emitted alone, so nothing is ever taken back.
        """
        decided = [first]
        for drafted_id, row in zip(piece.token_ids[1:], logits, strict=False):
            last = decided[-1]
            if isinstance(last, RowFailure) or last.token_id != drafted_id:
                break
            decided[-1] = replace(last, record=replace(last.record, accepted_draft=1))
            if self._finish_reason(active, drafted_id, len(decided)) is not None:
                break
            decided += self._decider.decide(row.unsqueeze(0), [active.state], step)
        return tuple(decided)

    def _emit(self, active: ActiveRequest, decided: Decided) -> None:
        for decision in decided:
            if self._active.get(active.request.id) is not active:  # its receiver failed
                return
            if isinstance(decision, RowFailure):
                self._fail(active, decision.message)
            else:
                self._emit_token(active, decision)

    def _emit_token(self, active: ActiveRequest, decision: Decision) -> None:
        self._num_tokens += 1
        active.take(decision.token_id, decision.record.entropy_nats)
        reason = self._finish_reason(active, decision.token_id, num_untaken=0)
        if reason is not None:
            del self._active[active.request.id]
            self._scheduler.finish(active)
        output = StepOutput(
            active.request.id,
            decision.token_id,
            decision.record,
            decision.top_logprobs,
            reason,
            decision.top_after,
            active.num_found,
        )
        self._deliver(active, output)

    def _finish_reason(self, active: ActiveRequest, token_id: int, num_untaken: int) -> FinishReason | None:
        """Say whether ``token_id`` ends a request that has yet to take in the last ``num_untaken`` tokens."""
        request, num_emitted = active.request, active.num_emitted + num_untaken
        if request.forced_ids:
            # A recorded text ends where its record ends, whatever ended it then.
            return "length" if num_emitted == len(request.forced_ids) else None
        sampling = request.sampling
        if token_id in sampling.stop_token_ids or (token_id in self._eos_ids and not sampling.ignore_eos):
            return "stop"
        is_full = active.num_tokens + num_untaken == self._model.max_context
        return "length" if is_full or num_emitted == sampling.max_tokens else None

    def _fail_all(self, plan: StepPlan, error: Exception) -> None:
        # What the step wrote before it failed lies behind num_cached: it is cleared, and never shared.
        for active, piece in zip(plan.active, plan.pieces, strict=True):
            active.num_written = max(active.num_written, piece.end)
        for active in plan.active:
            self._fail(active, f"the engine failed: {type(error).__name__}: {error}")

    def _fail(self, active: ActiveRequest, message: str) -> None:
        self._leave(active)
        self._deliver(active, RequestFailed(active.request.id, message))

    def _leave(self, active: ActiveRequest) -> None:
        del self._active[active.request.id]
        self._scheduler.remove(active)

    def _deliver(self, active: ActiveRequest, event: EngineEvent) -> None:
        try:
            active.emit(event)
        except Exception:
            # A receiver that breaks loses its own request; the thread and the batch go on.
            log.exception("the receiver of request %s failed", active.request.id)
            if self._active.get(active.request.id) is active:
                self._leave(active)
