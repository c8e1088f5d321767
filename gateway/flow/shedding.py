"""What is given up first when there is too little: the fuller the queue, the more, least harm first.

1 budget     smaller token budgets for the documents      prune.py
2 shadow     no shadow turns                               shadow.py
3 choices    n > 1 is refused
4 priority   refused is who is no more urgent than the least urgent that wait

A step begins when the fullest bucket's queue reaches its threshold, and ends when it has fallen well below,
so that it does not come and go with every turn.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from gateway.errors import QueueFull
from gateway.flow.admission import Admission
from gateway.flow.turn import Turn
from gateway.store.document import ContextSection
from gateway.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from gateway.flow.deps import Deps

Step: TypeAlias = Literal["budget", "shadow", "choices", "priority"]

STEPS: tuple[Step, ...] = ("budget", "shadow", "choices", "priority")
HYSTERESIS = 0.15
"""How far the fill falls below a threshold before its step ends."""
LEAST_BUDGET = 16
CHOICES = "The workers are busy: n > 1 is refused for now; ask for one choice."
PRIORITY = "The workers are busy: requests of this priority are refused for now."


@dataclass(frozen=True, slots=True)
class ShedSettings:
    """``thresholds``: the fill at which each step begins, rising; empty for none at all."""

    thresholds: tuple[float, ...]
    budget_factor: float
    """Of a task's token budget."""
    token_budget: int
    """What a task without one gets, in tokens."""


class Shedding:
    """The level in force: 0 is nothing, 4 all steps."""

    def __init__(self, admission: Admission, settings: ShedSettings, metrics: Metrics) -> None:
        self._admission = admission
        self._settings = settings
        self._metrics = metrics
        self.level = 0
        admission.on_change = self.update

    @property
    def steps(self) -> tuple[Step, ...]:
        return STEPS[: self.level]

    def update(self) -> None:
        """Follow the queue."""
        thresholds, fill = self._settings.thresholds, self._admission.fill
        while self.level < len(thresholds) and fill >= thresholds[self.level]:
            self.level += 1
        while self.level and fill <= max(0.0, thresholds[self.level - 1] - HYSTERESIS):
            self.level -= 1
        self._metrics.shed_level.set(self.level)

    def marked(self, turn: Turn) -> Turn:
        """Return the turn with the steps that are in force as it arrives."""
        return replace(turn, shed=self.steps) if self.level else turn

    def require_service(self, turn: Turn) -> None:
        """Raise QueueFull for a turn that is refused now; only for those that are marked so."""
        if "choices" in turn.shed and (turn.body.get("n") or 1) > 1:
            self._refuse(turn, "choices", CHOICES, param="n")
        least = self._admission.least_priority
        if "priority" in turn.shed and least is not None and turn.priority <= least:
            self._refuse(turn, "priority", PRIORITY, param=None)

    def context_for(self, turn: Turn, context: ContextSection) -> ContextSection:
        """Return what the documents may take of the prompt."""
        if "budget" not in turn.shed:
            return context
        self.count("budget")
        if context.token_budget is None:
            budget = self._settings.token_budget
        else:
            budget = max(LEAST_BUDGET, int(context.token_budget * self._settings.budget_factor))
        return context.model_copy(update={"token_budget": budget})

    def count(self, step: Step) -> None:
        """A turn was changed, left out or refused."""
        self._metrics.shed.labels(step).inc()

    def _refuse(self, turn: Turn, step: Step, message: str, *, param: str | None) -> None:
        self.count(step)
        raise QueueFull(message, param=param, retry_after_s=self._admission.retry_after_s(turn.priority))


async def admit(turn: Turn, deps: Deps) -> Turn:
    """Stage 2a. Raises QueueFull for what is refused while there is too little."""
    if turn.shed:
        deps.shedding.require_service(turn)
    return turn
