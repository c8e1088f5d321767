"""Guardrails: no arm may make their metric worse than the control by more than the margin."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from gateway.lab.findings import Comparison, GuardrailState, MetricFindings
from gateway.lab.intervals import Interval
from gateway.lab.metrics import Metric, metric_of
from gateway.lab.sequential import MIN_UNITS
from gateway.lab.wording import difference_words, margin_words, metric_name
from gateway.store.document import Better, ExperimentDocument, Guardrail

UNKNOWN = Interval(math.nan, -math.inf, math.inf)


def guardrail_states(
    document: ExperimentDocument, findings: Mapping[str, MetricFindings]
) -> Iterator[GuardrailState]:
    """Yield every guardrail in every arm but the control; broken where the whole interval is beyond it."""
    for guardrail in document.guardrails:
        found = findings.get(guardrail.metric)
        comparisons = {each.arm: each for each in found.comparisons} if found else {}
        for arm in document.arms:
            if arm.name != document.control.name:
                yield _state(guardrail, arm.name, comparisons.get(arm.name), document.control.name)


def is_beyond(difference: Interval, better: Better, margin: float) -> bool:
    """Whether the whole interval is worse than the control by more than ``margin``."""
    return difference.low > margin if better == "lower" else difference.high < -margin


def _state(guardrail: Guardrail, arm: str, comparison: Comparison | None, control: str) -> GuardrailState:
    difference = comparison.difference if comparison else UNKNOWN
    is_broken = is_beyond(difference, guardrail.better, guardrail.margin)
    return GuardrailState(
        guardrail, arm, difference, is_broken, _sentence(guardrail, arm, difference, control)
    )


def _sentence(guardrail: Guardrail, arm: str, difference: Interval, control: str) -> str:
    metric = metric_of(guardrail.metric)
    metric = metric or Metric(guardrail.metric, "", guardrail.better, "")
    name = metric_name(metric.name)
    allowed = margin_words(metric, guardrail.margin)
    worse = "higher" if guardrail.better == "lower" else "lower"
    rule = f"{name} may be {worse} than in {control} by {allowed}"
    if math.isnan(difference.mean):
        return f"{arm}: {rule}; there is no {name} in both arms yet"
    if not math.isfinite(difference.low):
        return f"{arm}: {rule}; not known yet: it takes {MIN_UNITS} units in each arm that are not all alike"
    words = difference_words(metric, difference)
    if is_beyond(difference, guardrail.better, guardrail.margin):
        return f"{arm} breaks a guardrail: {name} is {words} than in {control}, and {allowed} is allowed"
    nearest = difference.high if guardrail.better == "lower" else -difference.low
    if nearest <= guardrail.margin:
        return f"{arm} keeps it: {rule}, and it is {words}"
    return f"{arm} does not break it: {rule}, and it is {words}"
