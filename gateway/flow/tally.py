"""What is known of an answer so far. The one part of a turn that changes in place; it ends as the Outcome."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

from pydantic import ValidationError

from gateway.errors import RequestError
from gateway.flow.estimate import Figures, TurnEstimate
from gateway.flow.turn import Outcome, Status
from gateway.telemetry.spans import NO_SPAN, TurnSpan
from worker.protocol import TurnSummary

MAX_TEXT_CHARS = 1_000_000


class Tally:
    """Filled by dispatch and relay, read by the record, whichever way the turn ends."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._started_s = clock()
        self._status: Status = "ok"
        self._error_code = ""
        self._first_token_s: float | None = None
        self._finish_reasons: dict[int, str] = {}
        self._usage: Mapping[str, Any] = {}
        self._summaries: dict[int, TurnSummary] = {}
        self._text: list[str] = []
        self._num_chars = 0
        self._is_complete = False
        self.worker = ""
        self.num_attempts = 0
        self.span: TurnSpan = NO_SPAN
        self.estimate: TurnEstimate | None = None
        """What reads the answer's log-probabilities, where an opaque worker shows them."""

    @property
    def num_finished(self) -> int:
        return len(self._finish_reasons)

    @property
    def usage(self) -> Mapping[str, Any]:
        """The worker's last word on tokens; empty where it gave none."""
        return self._usage

    def has_finished(self, choice: int) -> bool:
        return choice in self._finish_reasons

    def mark_token(self) -> None:
        """Something of a streamed answer arrived."""
        if self._first_token_s is None:
            self._first_token_s = self._clock() - self._started_s

    def add_text(self, choice: int, text: str) -> None:
        """Text of an answer arrived. The first choice's is kept, up to a bound."""
        if choice == 0 and self._num_chars < MAX_TEXT_CHARS:
            self._text.append(text)
            self._num_chars += len(text)

    def add_finish(self, choice: int, reason: str) -> None:
        self._finish_reasons[choice] = reason

    def add_usage(self, usage: object) -> None:
        if isinstance(usage, dict):
            self._usage = usage

    def add_summary(self, choice: int, summary: object) -> None:
        """A native worker's summary of one choice; what is none is left out."""
        if isinstance(summary, dict):
            known = {name: value for name, value in summary.items() if name in TurnSummary.model_fields}
            try:
                self._summaries[choice] = TurnSummary.model_validate(known)
            except ValidationError:
                return

    def end_estimate(self, otherwise: str) -> None:
        """The answer is over; choices without a finish ended ``otherwise``."""
        if self.estimate is not None:
            self.estimate.end(self._finish_reasons, otherwise)

    def fail(self, error: RequestError) -> None:
        self._status, self._error_code = "error", error.code

    def complete(self) -> None:
        """The answer's last byte has gone out; whoever leaves now has it all."""
        self._is_complete = True

    def cancel(self) -> None:
        if not self._is_complete:
            self._status = "cancelled"

    def outcome(self) -> Outcome:
        """All of it as of now. Of several choices: a mean over their steps, or of their sums over steps."""
        figures = self._estimated()
        if figures:
            self._summaries = {choice: each.summary for choice, each in figures.items()}
        return Outcome(
            status=self._status,
            finish_reasons=tuple(reason for _, reason in sorted(self._finish_reasons.items())),
            error_code=self._error_code,
            prompt_tokens=_count(self._usage.get("prompt_tokens")),
            completion_tokens=_count(self._usage.get("completion_tokens")),
            time_to_first_token_s=self._first_token_s,
            latency_s=self._clock() - self._started_s,
            is_estimated=bool(figures),
            text="".join(self._text),
            **(self._measured(figures) if self._summaries else {}),
        )

    def _measured(self, figures: Mapping[int, Figures]) -> dict[str, Any]:
        """Return what a native worker measured, or what was estimated instead."""
        return {
            "mean_entropy_nats": self._mean("mean_entropy_nats", by_step=True),
            "mean_gravity": self._mean("mean_gravity", by_step=True),
            "entropic_time_nats": self._mean("entropic_time_nats", by_step=False),
            "net_drop_nats": self._mean("net_drop_nats", by_step=False),
            "envelope_nats": self._mean("envelope_nats", by_step=False),
            **self._costs(),
            "mean_kept_share": self._kept_share(),
            "seed": next((s.seed for s in self._summaries.values() if s.seed is not None), None),
            **_half_widths(list(figures.values())),
        }

    def _costs(self) -> dict[str, Any]:
        """Return what a native worker counted; nothing where it is older than the counting, or opaque."""
        cost = self._mean("cost_gmac", by_step=False)
        if not cost:
            return {}
        return {
            "cost_gmac": cost,
            "nats_per_gmac": (self._mean("entropic_time_nats", by_step=False) or 0.0) / cost,
            "cached_prompt_tokens": min(each.cached_prompt_tokens for each in self._summaries.values()),
        }

    def _kept_share(self) -> float | None:
        if all(each.mean_kept_share is None for each in self._summaries.values()):
            return None
        return self._mean("mean_kept_share", by_step=True)

    def _estimated(self) -> Mapping[int, Figures]:
        return {} if self.estimate is None else self.estimate.figures()

    def _mean(self, name: str, *, by_step: bool) -> float | None:
        weighted = [(s.num_steps if by_step else 1, getattr(s, name)) for s in self._summaries.values()]
        total = sum(weight for weight, _ in weighted)
        return sum(weight * value for weight, value in weighted) / total if total else None


def _half_widths(figures: Sequence[Figures]) -> dict[str, float]:
    """Return the half-widths of an outcome's means; empty where nothing is estimated."""
    num_steps = sum(each.summary.num_steps for each in figures)
    if not num_steps:
        return {}
    weighted = [(each.summary.num_steps / num_steps, each) for each in figures]
    return {
        "mean_entropy_half_width_nats": sum(w * each.entropy_half_width_nats for w, each in weighted),
        "mean_gravity_half_width": sum(w * each.gravity_half_width for w, each in weighted),
        "entropic_time_half_width_nats": fmean(each.entropic_time_half_width_nats for each in figures),
    }


def _count(value: object) -> int:
    return value if isinstance(value, int) else 0
