"""One text read and then written as it is recorded, under one way of choosing blocks."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from worker.decode.controller import Decider, Decision, StepContext
from worker.engine.active import ActiveRequest
from worker.engine.batch import Piece
from worker.engine.focus.focus import Focus
from worker.engine.focus.keeper import BlockKeeper
from worker.engine.loading import LoadedModel
from worker.engine.model import LanguageModel
from worker.engine.request import GenerationRequest, SamplingParams
from worker.engine.scheduler import StepPlan

PREFILL_CHUNK = 256


@dataclass(frozen=True, slots=True)
class Bench:
    """What steps are made of."""

    model: LanguageModel
    decider: Decider

    @classmethod
    def of(cls, loaded: LoadedModel) -> Bench:
        return cls(loaded.model, Decider(loaded.vocabulary))


@dataclass(slots=True)
class Reading:
    """The engine's own parts without its scheduler, so that a text's cache serves one arm after another."""

    bench: Bench
    keeper: BlockKeeper
    prompt_ids: Sequence[int]
    recorded_ids: Sequence[int] = ()
    slot: int = 0
    active: ActiveRequest = field(init=False)
    logits: Tensor = field(init=False)
    """Of the last step."""

    def __post_init__(self) -> None:
        sampling = SamplingParams(max_tokens=len(self.recorded_ids) + 1, temperature=0.0, ignore_eos=True)
        request = GenerationRequest(
            "bench", tuple(self.prompt_ids), sampling, forced_ids=tuple(self.recorded_ids)
        )
        state = self.bench.decider.open(request)
        self.active = ActiveRequest(request, state, lambda event: None, slot=self.slot)

    def begin(self, focus: Focus | None, num_cached: int) -> None:
        """Go on from what the slot holds."""
        self.active.focus = focus
        self.active.num_cached = num_cached

    def read(self, end: int) -> float:
        """Read the prompt up to position ``end`` and return the CPU seconds."""
        spent = 0.0
        while self.active.num_cached < end:
            _, step_s = self._step(end - self.active.num_cached)
            spent += step_s
        return spent

    def write(self) -> tuple[Decision, float]:
        """Write the next recorded token, and return what was decided and the CPU seconds without deciding."""
        decision, spent = self._step(1)
        assert decision is not None
        return decision, spent

    def again_s(self) -> float:
        """Return the CPU seconds of attending to everything at the last position once more."""
        position = self.active.num_cached - 1
        start = time.process_time()
        self.bench.model.forward([Piece(self.slot, position, (self.active.token_ids[position],), 1)])
        return time.process_time() - start

    def _step(self, max_tokens: int) -> tuple[Decision | None, float]:
        active = self.active
        start = time.process_time()
        if active.is_prefilling:
            piece = active.prefill_piece(min(max_tokens, PREFILL_CHUNK))
        else:
            piece = active.decode_piece()
        plan = self.keeper.with_views(StepPlan((active,), (piece,)))
        self.logits = self.bench.model.forward(plan.pieces)
        spent = time.process_time() - start
        decided = {}
        if plan.sampled:
            drawn = self.logits[-1:]
            decided[active] = tuple(self.bench.decider.decide(drawn, [active.state], StepContext(0, 1)))
        start = time.process_time()
        decision = self.keeper.learn(plan, self.logits, decided).get(active, (None,))[0]
        spent += time.process_time() - start
        active.num_cached = piece.end
        if isinstance(decision, Decision):
            active.take(decision.token_id, decision.record.entropy_nats)
            return decision, spent
        if decision is not None:
            raise RuntimeError(f"a row of the benchmark cannot be decoded: {decision.message}")
        return None, spent
