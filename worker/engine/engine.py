"""The decoding loop's one step: plan -> forward -> decide -> emit."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from worker.decode.controller import Decision, DecodeState, RowFailure, StepContext
from worker.engine.active import ActiveRequest
from worker.engine.admission import check_fits
from worker.engine.model import LanguageModel
from worker.engine.policy import PolicyName, make_policy
from worker.engine.request import EngineEvent, FinishReason, GenerationRequest, RequestFailed, StepOutput
from worker.engine.scheduler import Scheduler, StepPlan
from worker.engine.sequences import SequenceMemory

log = logging.getLogger(__name__)

Emit = Callable[[EngineEvent], None]


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
    prefix_blocks_total: int
    prefix_asked: int
    """Prompt tokens of admitted requests."""
    prefix_found: int
    """Of these, those that others had computed."""


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """How an engine schedules."""

    prefill_chunk: int = 256
    policy: PolicyName = "fcfs"
    kv_tokens: int | None = None


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
        active = ActiveRequest(request, state, emit)
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
        """Advance every running request by one token or one chunk of its prompt."""
        plan = self._scheduler.plan()
        try:
            logits = self._model.forward(plan.pieces)
            decisions = self._decide(plan.sampled, logits)
        except Exception as error:
            log.exception("a step failed, and with it the requests that took part")
            self._fail_all(plan, error)
            return
        self._scheduler.advance(plan)
        for active, decision in decisions:
            self._emit(active, decision)

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
            prefix_blocks_total=usage.prefix_blocks_total,
            prefix_asked=usage.prefix_tokens_asked,
            prefix_found=usage.prefix_tokens_found,
        )

    def _decide(
        self, sampled: list[ActiveRequest], logits: Tensor
    ) -> list[tuple[ActiveRequest, Decision | RowFailure]]:
        if not sampled:  # nothing but chunks of prompts
            return []
        self._num_steps += 1
        context = StepContext(self._num_steps, len(sampled))
        decisions = self._decider.decide(logits, [active.state for active in sampled], context)
        return list(zip(sampled, decisions, strict=True))

    def _emit(self, active: ActiveRequest, decision: Decision | RowFailure) -> None:
        if isinstance(decision, RowFailure):
            self._fail(active, decision.message)
            return
        self._num_tokens += 1
        active.take(decision.token_id, decision.record.entropy_nats)
        reason = self._finish_reason(active)
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

    def _finish_reason(self, active: ActiveRequest) -> FinishReason | None:
        request, token_id = active.request, active.last_id
        if request.forced_ids:
            # A recorded text ends where its record ends, whatever ended it then.
            return "length" if active.num_emitted == len(request.forced_ids) else None
        sampling = request.sampling
        if token_id in sampling.stop_token_ids or (token_id in self._eos_ids and not sampling.ignore_eos):
            return "stop"
        is_full = active.num_tokens == self._model.max_context
        return "length" if is_full or active.num_emitted == sampling.max_tokens else None

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
