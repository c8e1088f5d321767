"""What ``gravity bench soak`` has seen, as JSON and for people."""

from __future__ import annotations

from dataclasses import asdict
from operator import itemgetter
from typing import Any, get_args

from rich.console import Console
from rich.table import Table

from gateway.bench.soak.run import Soaked, SoakPlan
from gateway.chaos.endings import End

MAX_REASONS = 40


def report_of(soaked: Soaked, plan: SoakPlan) -> dict[str, Any]:
    """Return everything, ready for JSON."""
    return {"is_good": not soaked.problems, "setting": asdict(plan)} | asdict(soaked)


def print_report(report: dict[str, Any], console: Console) -> None:
    """Print a table of turns, what the processes hold, and the problems."""
    ends = get_args(End)
    table = Table("turns", *ends)
    for kind, counts in report["turns"].items():
        table.add_row(kind, *(str(counts.get(end, 0)) for end in ends))
    totals = (sum(counts.get(end, 0) for counts in report["turns"].values()) for end in ends)
    table.add_row("all", *map(str, totals))
    console.print(table)
    for reason, number in list(report["reasons"].items())[:MAX_REASONS]:
        console.print(f"{number:6} × {reason}", markup=False)
    kind, seconds = max(report["longest_s"].items(), key=itemgetter(1))
    console.print(f"the longest answer took {seconds:.0f} s ({kind})")
    for name, (before, after) in report["levels"].items():
        files = f"{before['num_descriptors']} → {after['num_descriptors']} open files"
        console.print(f"{name}: {files}, {before['num_threads']} → {after['num_threads']} threads")
    for name, rise in report["growth_mib"].items():
        console.print(f"memory of {name}: {rise:+.1f} MiB")
    if not report["growth_mib"]:
        console.print("memory: nothing can be said of so short a run")
    console.print(", ".join(f"{name} {value:,.0f}" for name, value in report["counters"].items()))
    for problem in report["problems"]:
        console.print(f"PROBLEM {problem}", markup=False)
    console.print("good" if report["is_good"] else f"{len(report['problems'])} problems")
