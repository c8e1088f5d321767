"""``gravity config list`` and ``gravity config history``: what is in force, and how it came about."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from gateway.configure.speech import FINE, answered, moment_text, print_json, value_text
from gateway.configure.target import Target
from gateway.store.centre import Change
from gateway.store.overview import Overview, overview


def run_list(target: Target, as_json: bool) -> int:
    """Print the documents of the head."""
    return answered(lambda: _list(target, as_json))


def run_history(target: Target, limit: int, as_json: bool) -> int:
    """Print the last changes, the newest first."""
    return answered(lambda: _history(target, limit, as_json))


def print_overview(found: Overview) -> None:
    """One row a task, one line an experiment and a warning."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("task", "gravity", "k", "temperature", "keeps"):
        table.add_column(name)
    for task in found.tasks:
        k = "–" if task.k_min is None else f"{task.k_min} to {task.k_max}"
        keeps = "all" if task.keep is None else value_text(task.keep)
        table.add_row(task.name, f"{task.gravity_strength:g}", k, value_text(task.temperature), keeps)
    Console(highlight=False).print(table)
    for experiment in found.experiments:
        state = "active" if experiment.is_active else "not active"
        arms = ", ".join(experiment.arms)
        print(f"experiment {experiment.id}: {arms} ({state}, coverage {experiment.coverage:g})")
    for warning in found.warnings:
        print(f"warning: {warning}")


def _list(target: Target, as_json: bool) -> int:
    found = overview(target.centre().head())
    if as_json:
        print_json(found)
        return FINE
    print_overview(found)
    number = f"version {found.number}, " if found.number else ""
    print(f"in force: {number}sha {found.sha}")
    return FINE


def _history(target: Target, limit: int, as_json: bool) -> int:
    changes = target.centre().history(limit)
    if as_json:
        print_json(changes)
        return FINE
    for line in history_lines(changes):
        print(line)
    return FINE


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
