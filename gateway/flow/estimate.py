"""H, G and tau of a turn at an opaque worker, estimated from the log-probabilities that it shows.

Each token's H lies between two bounds; the middle is reported, and half their distance beside it. The
sums over a turn are bounded too: tau, as a function of all its H, has an exact least and greatest value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from gateway.flow.logprobs import Seen, cut, seen_tokens
from gateway.lab.entropy_bounds import bound_entropy
from worker.protocol import NO_TOKEN, StepRecord, TurnSummary

BATCH_STEPS = 32
BATCH_S = 0.25
HISTORY = 0.7
"""Weight of history in the smoothed H, as native workers have it."""
UNKNOWN = math.nan
"""What cannot be said of a distribution whose tail is hidden."""


class StepSink(Protocol):
    """Where steps go; neither call waits."""

    def steps(self, turn_id: str, choice: int, first_step: int, records: list[StepRecord]) -> None: ...

    def end(self, turn_id: str, choice: int, num_steps: int, finish_reason: str) -> None: ...


class Asked(NamedTuple):
    """What a turn asked of its worker, and what is the same in all of its steps."""

    turn_id: str
    num_top: int
    """How many likeliest tokens the worker was asked for."""
    client_top: int
    """How many the client asked for; SILENT where it asked for none at all."""
    vocabulary_size: int
    top_k: int
    """The vocabulary's size where the request sets none."""
    top_p: float
    temperature: float
    bucket: int
    has_tokens: bool = True
    """False where no token's id may be kept."""


@dataclass(frozen=True, slots=True)
class Figures:
    """A choice's summary, and how far the truth may lie from it on either side."""

    summary: TurnSummary
    entropy_half_width_nats: float
    """Mean over the steps."""
    gravity_half_width: float
    entropic_time_half_width_nats: float


class ChoiceEstimate:
    """Running figures of one choice; a step costs a few microseconds."""

    def __init__(self) -> None:
        self.num_steps = 0
        self._sum_nats = self._sum_half_widths_nats = 0.0
        self._first = self._lower = self._upper = 0.0
        # The least tau: H as low as it can be, falling only where it must, by _lowest_path.
        self._least_tau = self._lowest_path = 0.0
        # The greatest: tau is convex in every H, so the best path runs along the bounds.
        self._tau_at_lower = self._tau_at_upper = 0.0
        self._smoothed = self._envelope = 0.0

    def add(self, lower: float, upper: float) -> None:
        """Take in the bounds of the next step's H, nats."""
        middle = (lower + upper) / 2
        if self.num_steps == 0:
            self._first = self._smoothed = middle
            self._lowest_path = lower
        else:
            self._extend_tau(lower, upper)
            self._smoothed = HISTORY * self._smoothed + (1 - HISTORY) * middle
            self._envelope = max(self._envelope, self._first - self._smoothed)
        self.num_steps += 1
        self._lower, self._upper = lower, upper
        self._sum_nats += middle
        self._sum_half_widths_nats += (upper - lower) / 2

    def _extend_tau(self, lower: float, upper: float) -> None:
        self._least_tau += max(0.0, self._lowest_path - upper)
        self._lowest_path = min(max(self._lowest_path, lower), upper)
        from_lower, from_upper = self._tau_at_lower, self._tau_at_upper
        self._tau_at_lower = max(
            from_lower + max(0.0, self._lower - lower), from_upper + max(0.0, self._upper - lower)
        )
        self._tau_at_upper = max(
            from_lower + max(0.0, self._lower - upper), from_upper + max(0.0, self._upper - upper)
        )

    def figures(self, vocabulary_size: int) -> Figures:
        """Return the figures so far; all zero before the first step."""
        num_steps, largest_nats = max(self.num_steps, 1), math.log(vocabulary_size)
        mean, half_width = self._sum_nats / num_steps, self._sum_half_widths_nats / num_steps
        greatest_tau = max(self._tau_at_lower, self._tau_at_upper)
        summary = TurnSummary(
            num_steps=self.num_steps,
            mean_entropy_nats=mean,
            mean_gravity=1.0 - mean / largest_nats,
            mean_k=vocabulary_size,
            entropic_time_nats=(self._least_tau + greatest_tau) / 2,
            net_drop_nats=self._first - (self._lower + self._upper) / 2,
            envelope_nats=self._envelope,
        )
        tau_half_width = (greatest_tau - self._least_tau) / 2
        return Figures(summary, half_width, half_width / largest_nats, tau_half_width)


class TurnEstimate:
    """Reads the log-probabilities of a turn's choices as they pass, and hands their steps on."""

    def __init__(self, asked: Asked, sink: StepSink, clock: Callable[[], float]) -> None:
        self._asked = asked
        self._sink = sink
        self._clock = clock
        self._choices: dict[int, ChoiceEstimate] = {}
        self._waiting: dict[int, list[StepRecord]] = {}
        self._since_s: dict[int, float] = {}

    def take(self, index: int, choice: dict[str, Any]) -> None:
        """Estimate what choice number ``index`` shows, and leave in it what the client asked for."""
        logprobs = choice.get("logprobs")
        if logprobs is None:
            return
        for seen in seen_tokens(logprobs, self._asked.num_top):
            self._add(index, seen)
        choice["logprobs"] = cut(logprobs, self._asked.client_top)

    def figures(self) -> Mapping[int, Figures]:
        """Return the figures of every choice that has shown a step."""
        size = self._asked.vocabulary_size
        return {index: estimate.figures(size) for index, estimate in self._choices.items()}

    def end(self, finish_reasons: Mapping[int, str], otherwise: str) -> None:
        """Hand on what waits and mark each choice's end; ``otherwise`` is that of one without a finish."""
        for index, estimate in self._choices.items():
            self._send(index)
            reason = finish_reasons.get(index, otherwise)
            self._sink.end(self._asked.turn_id, index, estimate.num_steps, reason)

    def _add(self, index: int, seen: Seen) -> None:
        estimate = self._choices.get(index)
        if estimate is None:
            estimate = self._choices[index] = ChoiceEstimate()
            self._waiting[index] = []
        bounds = bound_entropy(seen.shown, seen.largest_hidden, self._asked.vocabulary_size)
        if not math.isfinite(bounds.upper_nats):
            return
        estimate.add(*bounds)
        waiting = self._waiting[index]
        if not waiting:
            self._since_s[index] = self._clock()
        waiting.append(self._record(seen, *bounds))
        if len(waiting) >= BATCH_STEPS or self._clock() - self._since_s[index] >= BATCH_S:
            self._send(index)

    def _send(self, index: int) -> None:
        waiting, self._waiting[index] = self._waiting[index], []
        if waiting:
            first = self._choices[index].num_steps - len(waiting)
            self._sink.steps(self._asked.turn_id, index, first, waiting)

    def _record(self, seen: Seen, lower: float, upper: float) -> StepRecord:
        asked = self._asked
        entropy = (lower + upper) / 2
        s = entropy / math.log(asked.vocabulary_size)
        return StepRecord(
            token_id=seen.token_id if asked.has_tokens and abs(seen.token_id) < 2**31 else NO_TOKEN,
            logprob=seen.logprob,
            entropy_nats=entropy,
            normalised_entropy=s,
            gravity=1.0 - s,
            varentropy=UNKNOWN,
            p_max=math.exp(max(seen.shown)),
            k=asked.top_k,
            p=asked.top_p,
            temperature=asked.temperature,
            bias_nats=0.0,
            entropy_after_nats=UNKNOWN,
            bucket=asked.bucket,
            accepted_draft=0,
            engine_step=0,
            batch_size=0,
            entropy_half_width_nats=(upper - lower) / 2,
        )
