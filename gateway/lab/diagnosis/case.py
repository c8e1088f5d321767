"""What a diagnosis looks at and what it says: one recorded turn in plain values, and its findings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from gateway.store.document import CalibrationSection
from worker.protocol import NO_TOKEN, DecodeControls, StepRecord

Subject: TypeAlias = Literal["input", "sampling", "length", "environment", "framework"]
"""In the order in which one looks."""
Value: TypeAlias = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class ContextFacts:
    """What became of the documents. ``reasons`` counts the verdicts by their reason."""

    num_documents: int = 0
    num_kept: int = 0
    reasons: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    conflicts: tuple[str, ...] = ()
    """One sentence each."""
    centres: tuple[tuple[str, ...], ...] = ()
    """The documents' ids; empty unless there are two or more."""
    has_theme: bool = False
    is_pruning: bool = True
    """Whether lane and task ask for it."""
    keep: str | float = "balanced"
    token_budget: int | None = None
    tokens_before: int = 0
    tokens_after: int = 0
    note: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """One choice's steps. ``finish_reason`` as the trace has it; None where it never ended."""

    choice: int
    steps: tuple[StepRecord, ...]
    finish_reason: str | None


@dataclass(frozen=True, slots=True)
class Case:
    """One turn, as far as a diagnosis asks."""

    turn_id: str
    task: str
    model: str
    controls: DecodeControls
    temperature: float
    """What was asked for; the steps say what was in force."""
    max_tokens: int | None = None
    top_k: int | None = None
    answers: tuple[Answer, ...] = ()
    context: ContextFacts = ContextFacts()
    calibration: CalibrationSection | None = None
    expected_s: float | None = None
    status: Literal["ok", "error", "cancelled"] = "ok"
    error_code: str = ""
    completion_tokens: int = 0
    """As the worker counted them, over all choices."""
    num_attempts: int = 1
    requested: frozenset[str] = frozenset()
    """What the request itself set: OpenAI's fields by name, its ``gravity`` as ``gravity.SECTION.FIELD``."""
    environment: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """Of the worker that answered."""
    environment_now: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """Of the worker that looks at it again; empty where none does."""

    @property
    def num_steps(self) -> int:
        """Of all choices."""
        return sum(len(answer.steps) for answer in self.answers)

    def step(self, place: StepPlace) -> StepRecord:
        """Return the step there."""
        return next(answer for answer in self.answers if answer.choice == place.choice).steps[place.step]

    def path(self, name: str) -> str:
        """Return where a task's setting ``name`` (``section.field``) is to be changed for such a turn."""
        if {f"gravity.{name}", f"gravity.{name.split('.')[0]}"} & self.requested:
            return f"request.gravity.{name}"
        return f"tasks.{self.task}.{name}"

    def sampling_path(self, name: str) -> str:
        """Return where ``temperature`` or ``max_tokens`` is to be changed: in the request if it says one."""
        return f"request.{name}" if name in self.requested else f"tasks.{self.task}.sampling.{name}"


@dataclass(frozen=True, slots=True)
class StepPlace:
    """One step of one choice, counted from 0."""

    choice: int
    step: int


@dataclass(frozen=True, slots=True)
class SettingChange:
    """A setting, and the value that is proposed for it."""

    path: str
    before: Value
    after: Value

    def __str__(self) -> str:
        return f"{self.path}: {_shown(self.before)} -> {_shown(self.after)}"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, in plain words, and what to do about it."""

    subject: Subject
    name: str
    sentence: str
    steps: tuple[StepPlace, ...] = ()
    """Those that show it, in order."""
    change: SettingChange | None = None
    advice: str = ""
    """What to do where no single setting does it."""
    weight: float = 0.0
    """How bad it is, among findings of one name."""


def places(choice: int, steps: Sequence[int]) -> Iterator[StepPlace]:
    return (StepPlace(choice, step) for step in steps)


def mean_entropy(steps: Sequence[StepRecord]) -> float:
    """Return the mean of H in nats, of at least one step."""
    return sum(step.entropy_nats for step in steps) / len(steps)


def is_told(steps: Sequence[StepRecord]) -> bool:
    """Whether the trace says which tokens they were."""
    return all(step.token_id != NO_TOKEN for step in steps)


def _shown(value: Value) -> str:
    if value is None:
        return "none"
    return f"{value:g}" if isinstance(value, float) else str(value)
