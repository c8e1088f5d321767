"""What a request carries from step to step."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from worker.decode.pull import Pull
from worker.decode.row import Ids
from worker.engine.request import GenerationRequest
from worker.thermo.entropy import FloatRow

COLDEST = 1e-6
"""Below this temperature the gap of one float32 bit decides, so it counts as greedy."""


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """What is worked out once for a request and shared by all copies of its state."""

    request: GenerationRequest
    pull: Pull | None
    prompt_ids: frozenset[int]
    prompt_id_array: Ids
    biased_ids: Ids
    bias_values: FloatRow
    num_recent: int
    """How many of the last tokens the pull looks at."""

    @classmethod
    def of(cls, request: GenerationRequest, pull: Pull | None) -> Plan:
        distinct = frozenset(request.prompt_ids)
        window = pull.controls.drift.window if pull and pull.controls.drift else 0
        biases = request.sampling.logit_bias
        return cls(
            request=request,
            pull=pull,
            prompt_ids=distinct,
            prompt_id_array=np.array(sorted(distinct), np.intp),
            biased_ids=np.array(list(biases), np.intp),
            bias_values=np.array(list(biases.values()), np.float32),
            num_recent=max(window, max(pull.prefix_lengths, default=0) if pull else 0),
        )


@dataclass(slots=True)
class DecodeState:
    """A request's own state: it is never indexed by a row of a batch, and it dies with the request."""

    plan: Plan
    temperature: float
    position: int = 0
    recent_ids: list[int] = field(default_factory=list)
    """The last tokens of prompt and text, as far back as the pull looks."""
    counts: dict[int, int] = field(default_factory=dict)
    """How often each token was emitted."""
    smoothed_s: float | None = None
    recent_s: list[float] = field(default_factory=list)
    smoothed_entropy_nats: float | None = None
    stage_factor: float | None = None

    @classmethod
    def start(cls, plan: Plan) -> DecodeState:
        recent = list(plan.request.prompt_ids[-plan.num_recent :]) if plan.num_recent else []
        return cls(plan, _first_temperature(plan.request), recent_ids=recent)

    @property
    def request(self) -> GenerationRequest:
        return self.plan.request

    @property
    def forced_id(self) -> int | None:
        """The token that a replay emits at this position, whatever is drawn."""
        forced = self.request.forced_ids
        return forced[self.position] if self.position < len(forced) else None

    def copy(self) -> DecodeState:
        """Return a state that can be rolled forward on its own, for tokens that may be taken back."""
        return replace(
            self, recent_ids=list(self.recent_ids), counts=dict(self.counts), recent_s=list(self.recent_s)
        )

    def advance(self, token_id: int) -> None:
        """Take in the token that was emitted."""
        self.position += 1
        self.counts[token_id] = self.counts.get(token_id, 0) + 1
        if self.plan.num_recent:
            self.recent_ids.append(token_id)
            del self.recent_ids[: -self.plan.num_recent]


def _first_temperature(request: GenerationRequest) -> float:
    temperature, controls = request.sampling.temperature, request.controls.temperature
    if temperature < COLDEST:
        return 0.0
    if controls is not None and controls.mode == "feedback":
        return max(controls.t_min, min(temperature, controls.t_max))
    return temperature
