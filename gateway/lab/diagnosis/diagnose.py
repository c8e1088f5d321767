"""Names what is wrong with a turn as a person would, in the order in which one looks.

Input, sampling, length, environment, framework: what is wrong earlier explains what is wrong later.
docs/diagnosis.md has every finding with its thresholds and their reasons.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from gateway.lab.diagnosis.case import Case, Finding, SettingChange
from gateway.lab.diagnosis.environment import environment_findings
from gateway.lab.diagnosis.framework import framework_findings
from gateway.lab.diagnosis.input import input_findings
from gateway.lab.diagnosis.length import length_findings
from gateway.lab.diagnosis.sampling import sampling_findings

NUM_EXAMPLES = 3


def diagnose(case: Case) -> tuple[Finding, ...]:
    """Return what is wrong with one turn; empty where nothing is."""
    return (
        *input_findings(case),
        *sampling_findings(case),
        *length_findings(case),
        *environment_findings(case),
        *framework_findings(case),
    )


@dataclass(frozen=True, slots=True)
class Pattern:
    """One finding over many turns."""

    subject: str
    name: str
    num_turns: int
    share: float
    example: Finding
    """The worst turn's."""
    worst_turns: tuple[str, ...]
    """Ids, the worst first."""
    change: SettingChange | None
    """What is proposed most often."""


def patterns(diagnosed: Sequence[tuple[str, Sequence[Finding]]]) -> tuple[Pattern, ...]:
    """Return how often each finding occurs among turns (id, findings), in the order of ``diagnose``."""
    found: defaultdict[tuple[str, str], list[tuple[str, Finding]]] = defaultdict(list)
    for turn_id, findings in diagnosed:
        for finding in findings:
            found[finding.subject, finding.name].append((turn_id, finding))
    subjects = ("input", "sampling", "length", "environment", "framework")
    ordered = sorted(found, key=lambda key: (subjects.index(key[0]), -len(found[key])))
    return tuple(_pattern(found[key], len(diagnosed)) for key in ordered)


def _pattern(occurrences: Sequence[tuple[str, Finding]], num_turns: int) -> Pattern:
    worst = sorted(occurrences, key=lambda occurrence: -occurrence[1].weight)
    changes = Counter(finding.change for _, finding in worst if finding.change is not None)
    example = worst[0][1]
    return Pattern(
        example.subject,
        example.name,
        len(occurrences),
        len(occurrences) / num_turns,
        example,
        tuple(turn_id for turn_id, _ in worst[:NUM_EXAMPLES]),
        changes.most_common(1)[0][0] if changes else None,
    )
