"""What an analysis finds. All of it can be written as JSON; a bound that is not known is null there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import orjson

from gateway.lab.intervals import Interval, JsonNumber
from gateway.lab.metrics import Metric
from gateway.lab.srm import SampleRatio
from gateway.store.document import Guardrail

VerdictKind: TypeAlias = Literal["better", "worse", "undecided", "hidden", "stopped"]


@dataclass(frozen=True, slots=True)
class ArmFigures:
    """One metric in one arm. A unit's value is the mean of its turns; ``mean`` is the mean of the units."""

    arm: str
    num_units: int
    num_turns: int
    """Turns that have the metric."""
    mean: Interval
    num_missing: int
    """Turns of the arm that lack it."""
    num_unfinished: int
    """Those of them that ended in an error or were cancelled."""


@dataclass(frozen=True, slots=True)
class Cuped:
    """What the regression on the period before did."""

    theta: float
    num_units: int
    """Units that have a period before."""
    variance_reduction: float
    """Share of the variance between units that is gone."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """An arm against the control. ``difference`` is ours - control's; infinite bounds: not known yet."""

    arm: str
    difference: Interval
    relative: float | None
    """The difference as a share of the control's mean; None where that is 0."""
    cuped: Cuped | None
    """None: the plain difference."""
    units_needed: JsonNumber
    """Units of both arms together that would set this difference apart from 0; infinite or NaN: unknown."""


@dataclass(frozen=True, slots=True)
class MetricFindings:
    """One metric. ``comparisons`` are left out while the arms' sizes do not fit."""

    metric: Metric
    arms: tuple[ArmFigures, ...]
    comparisons: tuple[Comparison, ...]


@dataclass(frozen=True, slots=True)
class ShadowFindings:
    """Turns of an arm against their own shadows: ours - the control's answer to the same request."""

    metric: Metric
    arm: str
    num_units: int
    num_pairs: int
    difference: Interval


@dataclass(frozen=True, slots=True)
class GuardrailState:
    """One guardrail in one arm. ``difference`` is the arm's - the control's."""

    guardrail: Guardrail
    arm: str
    difference: Interval
    is_broken: bool
    sentence: str


@dataclass(frozen=True, slots=True)
class Exclusions:
    """What was seen and does not count, or could not be read."""

    num_damaged: int
    num_unknown_feedback: int
    num_moved_units: int
    """Units seen in two arms: out with all their turns."""
    num_foreign_units: int
    """Units under an arm that the document does not have."""
    num_silent_units: int
    """Exposed, but without a finished turn yet: in the sample ratio, in no mean."""
    num_unexposed_turns: int
    """Turns in an arm, of units without an exposure: it was lost, or left the bounded stream."""
    num_left_turns: int
    """Turns of units that a lower coverage has taken out again."""
    num_unpaired_shadows: int
    """Shadows whose turn is not here."""


@dataclass(frozen=True, slots=True)
class Verdict:
    kind: VerdictKind
    text: str
    """As one would say it to the product's team."""


@dataclass(frozen=True, slots=True)
class ExperimentReport:
    """``metrics``: the primary first, then the guardrails', then all others that have data."""

    experiment: str
    version: int
    is_active: bool
    control: str
    verdict: Verdict
    notes: tuple[str, ...]
    """What has to be known beside the verdict, a sentence each."""
    alpha: float
    """Of each interval: 0.05, divided by the number of comparisons where there are several arms."""
    sample_ratio: SampleRatio
    guardrails: tuple[GuardrailState, ...]
    metrics: tuple[MetricFindings, ...]
    shadows: tuple[ShadowFindings, ...]
    exclusions: Exclusions


def report_json(report: ExperimentReport) -> bytes:
    """Return the report as JSON, indented. What is infinite or unknown becomes null."""
    return orjson.dumps(report, default=_plain, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def _plain(value: object) -> object:
    if isinstance(value, Guardrail):
        return value.model_dump()
    raise TypeError(f"not for JSON: {type(value).__name__}")
