"""A diagnosis as people and as programs read it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from gateway.diagnose.likeliest import Likely, Shown
from gateway.diagnose.many import TaskDiagnosis
from gateway.diagnose.one import TurnDiagnosis, telling
from gateway.lab.diagnosis.case import Finding, SettingChange, StepPlace
from gateway.lab.diagnosis.diagnose import Pattern
from worker.protocol import StepRecord

NOTHING = "nothing found"
MAX_LISTED_STEPS = 12


def print_turn(console: Console, diagnosis: TurnDiagnosis) -> None:
    """Each finding: its name, a sentence, its steps with the likeliest tokens, and what to change."""
    case = diagnosis.case
    console.print(Text(f"turn {case.turn_id}: task {case.task}, {case.model}, {case.num_steps} steps"))
    if not diagnosis.findings:
        console.print(NOTHING)
    for finding in diagnosis.findings:
        console.print()
        console.print(Text(f"{finding.subject}: {finding.name}", style="bold"))
        for line in _lines(diagnosis, finding):
            console.print(Padding(Text(line), (0, 0, 0, 2)))
    if diagnosis.not_shown and case.num_steps:
        console.print(Text(f"\nThe likeliest tokens are not shown: {diagnosis.not_shown}"))
    elif diagnosis.not_shown:
        console.print(Text(f"\nOnly the record was looked at, without its steps: {diagnosis.not_shown}"))


def print_task(console: Console, task: str, diagnosis: TaskDiagnosis) -> None:
    """How many turns have each finding, the worst of them, and one proposal each."""
    unread = f"; {diagnosis.num_unread} could not be read" if diagnosis.num_unread else ""
    console.print(
        Text(f"task {task}: {diagnosis.num_turns} turns, with {NOTHING} in {diagnosis.num_sound}{unread}")
    )
    for pattern in diagnosis.patterns:
        console.print()
        of_all = f"{pattern.num_turns} of {diagnosis.num_turns} turns ({pattern.share:.0%})"
        heading = f"{pattern.subject}: {pattern.name}: {of_all}"
        console.print(Text(heading, style="bold"))
        lines = [f"for example: {pattern.example.sentence}", f"worst: {', '.join(pattern.worst_turns)}"]
        for line in (*lines, *_remedy(pattern.change, pattern.example.advice)):
            console.print(Padding(Text(line), (0, 0, 0, 2)))


def turn_json(diagnosis: TurnDiagnosis) -> dict[str, Any]:
    """The same for a file."""
    return {
        "turn_id": diagnosis.case.turn_id,
        "task": diagnosis.case.task,
        "model": diagnosis.case.model,
        "num_steps": diagnosis.case.num_steps,
        "findings": [_finding_json(diagnosis, finding) for finding in diagnosis.findings],
        "not_shown": diagnosis.not_shown,
    }


def task_json(task: str, diagnosis: TaskDiagnosis) -> dict[str, Any]:
    """The same for a file."""
    return {
        "task": task,
        "num_turns": diagnosis.num_turns,
        "num_sound": diagnosis.num_sound,
        "num_unread": diagnosis.num_unread,
        "findings": [_pattern_json(pattern) for pattern in diagnosis.patterns],
    }


def _lines(diagnosis: TurnDiagnosis, finding: Finding) -> Iterator[str]:
    yield finding.sentence
    if finding.steps:
        yield f"steps {_numbers(finding.steps)}"
    for place in telling(diagnosis.case, finding.steps):
        shown = diagnosis.shown.get(place)
        if shown is not None:
            yield from _step_lines(place, diagnosis.case.step(place), shown)
    yield from _remedy(finding.change, finding.advice)


def _step_lines(place: StepPlace, step: StepRecord, shown: Shown) -> Iterator[str]:
    yield (
        f"  step {place.step}: {shown.piece!r}, H {step.entropy_nats:.2f}, k {step.k}, "
        f"bias {step.bias_nats:+.2f}; likeliest {_tokens(shown.top)}"
    )
    if [token.id for token in shown.top_after] != [token.id for token in shown.top]:
        yield f"      after the pull {_tokens(shown.top_after)}"


def _tokens(top: Sequence[Likely]) -> str:
    return ", ".join(f"{token.piece!r} {math.exp(token.logprob):.1%}" for token in top)


def _numbers(steps: Sequence[StepPlace]) -> str:
    has_choices = len({place.choice for place in steps}) > 1
    listed = [f"{place.choice}:{place.step}" if has_choices else str(place.step) for place in steps]
    if len(listed) <= MAX_LISTED_STEPS:
        return ", ".join(listed)
    half = MAX_LISTED_STEPS // 2
    return f"{', '.join(listed[:half])} … {', '.join(listed[-half:])} ({len(listed)} in all)"


def _remedy(change: SettingChange | None, advice: str) -> Iterator[str]:
    if change is not None:
        yield f"change {change}"
    if advice:
        yield advice


def _finding_json(diagnosis: TurnDiagnosis, finding: Finding) -> dict[str, Any]:
    return {
        "subject": finding.subject,
        "name": finding.name,
        "sentence": finding.sentence,
        "steps": [_step_json(diagnosis, place) for place in finding.steps],
        "change": _change_json(finding.change),
        "advice": finding.advice,
    }


def _step_json(diagnosis: TurnDiagnosis, place: StepPlace) -> dict[str, Any]:
    step, shown = diagnosis.case.step(place), diagnosis.shown.get(place)
    values: dict[str, Any] = {
        "choice": place.choice,
        "step": place.step,
        "entropy_nats": step.entropy_nats,
        "entropy_after_nats": step.entropy_after_nats,
        "k": step.k,
        "bias_nats": step.bias_nats,
    }
    if shown is not None:
        values["piece"] = shown.piece
        values["top"] = [token.model_dump() for token in shown.top]
        values["top_after"] = [token.model_dump() for token in shown.top_after]
    return values


def _pattern_json(pattern: Pattern) -> dict[str, Any]:
    return {
        "subject": pattern.subject,
        "name": pattern.name,
        "num_turns": pattern.num_turns,
        "share": pattern.share,
        "sentence": pattern.example.sentence,
        "worst_turns": list(pattern.worst_turns),
        "change": _change_json(pattern.change),
        "advice": pattern.example.advice,
    }


def _change_json(change: SettingChange | None) -> dict[str, Any] | None:
    return None if change is None else {"path": change.path, "before": change.before, "after": change.after}
