"""The verdict in words, as a careful analyst would write it to the product's team."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gateway.lab.findings import ArmFigures, Comparison, GuardrailState, MetricFindings, Verdict, VerdictKind
from gateway.lab.metrics import Metric
from gateway.lab.sequential import MIN_UNITS
from gateway.lab.srm import SampleRatio
from gateway.lab.wording import counted, difference_words, listed, mean_words, metric_name
from gateway.store.document import ExperimentDocument

_WORTH_NAMING = 100
"""A forecast beyond so many times the units so far is no forecast."""


def verdict_of(
    document: ExperimentDocument,
    primary: MetricFindings | None,
    ratio: SampleRatio,
    guardrails: Sequence[GuardrailState],
) -> Verdict:
    """Return what is to be said first: hidden, stopped, else what the primary metric says."""
    broken = [state for state in guardrails if state.is_broken]
    stopping = [state for state in broken if state.guardrail.action != "report"]
    if ratio.is_alarm:
        return Verdict("hidden", _with(_hidden(ratio), broken))
    if stopping:
        return Verdict("stopped", _with("stopped" if not document.is_active else "stop", stopping, ": "))
    kind, found = _primary(document, primary)
    found = _with(found, broken)
    return Verdict(kind, found) if document.is_active else Verdict("stopped", f"stopped; so far {found}")


def _with(text: str, states: Sequence[GuardrailState], joint: str = "; and ") -> str:
    return text + joint + "; ".join(state.sentence for state in states) if states else text


def _hidden(ratio: SampleRatio) -> str:
    sizes = listed([f"{count:,} in {arm}" for arm, count in ratio.counts.items()])
    expected = listed([f"{count:,.0f}" for count in ratio.expected.values()])
    return (
        f"hidden: the arms' sizes do not fit their shares ({sizes}, where {expected} are expected; "
        f"chi-square p = {ratio.p_value:.2g}, and {ratio.anytime_p_value:.2g} for all looks together). Units "
        "are lost or counted twice on the way, so the arms cannot be compared: find out where, then begin a "
        "new version"
    )


def _primary(document: ExperimentDocument, found: MetricFindings | None) -> tuple[VerdictKind, str]:
    if len(document.arms) < 2:
        return "undecided", "not decided: there is one arm, and nothing to compare it with"
    if found is None:
        return "undecided", f"not decided yet: no turn has {metric_name(document.primary_metric)} yet"
    sentences = [_sentence(document, found, comparison) for comparison in found.comparisons]
    kinds = [kind for kind, _ in sentences]
    kind: VerdictKind = "undecided"
    if "better" in kinds:
        kind = "better"
    elif set(kinds) == {"worse"}:
        kind = "worse"
    return kind, "; ".join(text for _, text in sentences)


def _sentence(
    document: ExperimentDocument, found: MetricFindings, comparison: Comparison
) -> tuple[VerdictKind, str]:
    figures = {each.arm: each for each in found.arms}
    ours, control = figures[comparison.arm], figures[document.control.name]
    name, difference = metric_name(found.metric.name), comparison.difference
    units = f"{ours.num_units:,} and {counted(control.num_units, 'unit')}"
    if not math.isfinite(difference.low):
        return "undecided", (
            f"not decided yet: {comparison.arm} and {control.arm} have {units} with {name}; it takes "
            f"{MIN_UNITS} in each that are not all alike"
        )
    words = f"{name} {difference_words(found.metric, difference)}"
    if not difference.excludes_zero:
        return "undecided", (
            f"not decided yet: {words} in {comparison.arm} than in {control.arm}, {units}"
            f"{_adjustment(comparison)}; {_forecast(comparison, ours, control)}"
        )
    kind: VerdictKind = "better" if _is_gain(found.metric, difference.mean) else "worse"
    share = f", {abs(comparison.relative):.0%} of" if comparison.relative is not None else " against"
    reference = f"{share} {control.arm}'s {mean_words(found.metric, control.mean.mean)}"
    return kind, (f"{comparison.arm} is {kind}: {words}{reference}; {units}{_adjustment(comparison)}")


def _is_gain(metric: Metric, difference: float) -> bool:
    return (difference > 0.0) == (metric.better == "higher")


def _adjustment(comparison: Comparison) -> str:
    if comparison.cuped is None:
        return ""
    return f"; adjusted by the period before (CUPED), variance {comparison.cuped.variance_reduction:.0%} less"


def _forecast(comparison: Comparison, ours: ArmFigures, control: ArmFigures) -> str:
    times = comparison.units_needed / (ours.num_units + control.num_units)
    if not times <= _WORTH_NAMING:
        return "a difference as small as this one would not show in a hundred times as many units"
    more = [_rounded(max(1.0, (times - 1.0) * arm.num_units)) for arm in (ours, control)]
    return (
        f"if it is as large as that, about {counted(more[0], 'more unit')} in {ours.arm} and {more[1]:,} in "
        f"{control.arm} would show it"
    )


def _rounded(number: float) -> int:
    """Return the number to two digits, upwards."""
    step: int = 10 ** max(0, math.floor(math.log10(number)) - 1)
    return math.ceil(number / step) * step
