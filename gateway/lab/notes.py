"""What has to be known beside a verdict: what is missing, what was left out, how much is corrected."""

from __future__ import annotations

from collections.abc import Iterator

from gateway.lab.findings import ArmFigures, Exclusions, MetricFindings
from gateway.lab.srm import SampleRatio
from gateway.lab.wording import counted, listed, metric_name
from gateway.store.document import ExperimentDocument

_EXCLUDED = {
    "num_damaged": ("entry", "could not be read"),
    "num_unknown_feedback": ("report", "of clients named turns that are not here"),
    "num_moved_units": ("unit", "seen in two arms: out with all turns; this must not happen"),
    "num_foreign_units": ("unit", "under an arm that the document does not have: out"),
    "num_silent_units": ("unit", "exposed, without a finished turn yet"),
    "num_unexposed_turns": (
        "turn",
        "of units whose exposure was lost, or has left the bounded stream: out",
    ),
    "num_left_turns": ("turn", "of units that a lower coverage has taken out: out"),
    "num_unpaired_shadows": ("shadow turn", "without the turn that it repeats: out"),
}


def notes_of(
    document: ExperimentDocument,
    primary: MetricFindings | None,
    ratio: SampleRatio,
    exclusions: Exclusions,
) -> tuple[str, ...]:
    """Return the sentences, in the order of their weight."""
    return tuple(_notes(document, primary, ratio, exclusions))


def _notes(
    document: ExperimentDocument,
    primary: MetricFindings | None,
    ratio: SampleRatio,
    exclusions: Exclusions,
) -> Iterator[str]:
    if primary is not None and any(arm.num_unfinished for arm in primary.arms):
        counts = listed([_missing(arm) for arm in primary.arms])
        yield (
            f"{counts} have no {metric_name(primary.metric.name)}, as they ended in an error or were "
            "cancelled: the comparison is among the others, so look at those two shares first"
        )
    if not ratio.is_alarm and any(ratio.counts.values()) and min(ratio.expected.values()) < 5.0:
        yield "too few units for the check of the arms' sizes: it takes 5 expected in each"
    num_compared = len(document.arms) - 1
    if num_compared > 1:
        yield (
            f"{num_compared} arms are compared with {document.control.name}: each interval is at "
            f"{1.0 - 0.05 / num_compared:.1%}, so that all of a metric hold together with 95 %"
        )
    for name, (noun, words) in _EXCLUDED.items():
        if number := getattr(exclusions, name):
            yield f"{_plural(number, noun)} {words}"


def _missing(arm: ArmFigures) -> str:
    turns = counted(arm.num_turns + arm.num_missing, "turn")
    return f"{arm.num_unfinished:,} of {turns} of {arm.arm}"


def _plural(number: int, noun: str) -> str:
    return counted(number, noun) if noun != "entry" or number == 1 else f"{number:,} entries"
