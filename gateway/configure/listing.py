"""``gravity config list`` and ``gravity config history``: what is in force, and how it came about."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.configure.speech import FINE, Tell, answered, columns, moment_text, value_text
from gateway.stack.target import Target
from gateway.store.centre import Change
from gateway.store.overview import Overview, TaskRow, overview

HEADINGS = ("task", "gravity", "k", "temperature", "keeps")


def run_list(target: Target, tell: Tell) -> int:
    """Tell the documents of the head."""
    return answered(lambda: _list(target, tell))


def run_history(target: Target, limit: int, tell: Tell) -> int:
    """Tell the last changes, the newest first."""
    return answered(lambda: _history(target, limit, tell))


def overview_lines(found: Overview) -> list[str]:
    """One row a task, one line an experiment and a warning."""
    lines = columns([HEADINGS, *map(_cells, found.tasks)])
    for experiment in found.experiments:
        state = "active" if experiment.is_active else "not active"
        arms = ", ".join(experiment.arms)
        lines.append(f"experiment {experiment.id}: {arms} ({state}, coverage {experiment.coverage:g})")
    return lines + [f"warning: {warning}" for warning in found.warnings]


def history_lines(changes: Sequence[Change]) -> list[str]:
    """Two lines a change: number, moment, kind, who, from and to; then why."""
    lines = []
    for change in changes:
        forced = ", forced" if change.is_forced else ""
        from_sha = change.from_sha[:12] or "nothing"
        lines.append(
            f"{change.number}  {moment_text(change.at)}  {change.kind}{forced} by {change.who}: "
            f"{from_sha} -> {change.to_sha[:12]}"
        )
        lines.append(f"   {change.why}")
    return lines or ["nothing was published yet"]


def _cells(task: TaskRow) -> tuple[str, ...]:
    k = "–" if task.k_min is None else f"{task.k_min} to {task.k_max}"
    keeps = "all" if task.keep is None else value_text(task.keep)
    return task.name, f"{task.gravity_strength:g}", k, value_text(task.temperature), keeps


def _list(target: Target, tell: Tell) -> int:
    found = overview(target.centre().head())
    number = f"version {found.number}, " if found.number else ""
    tell(found, [*overview_lines(found), f"in force: {number}sha {found.sha}"])
    return FINE


def _history(target: Target, limit: int, tell: Tell) -> int:
    changes = target.centre().history(limit)
    tell(changes, history_lines(changes))
    return FINE
