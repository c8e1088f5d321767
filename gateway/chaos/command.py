"""``gravity chaos run``: a run, its table, and its exit status."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import get_args

import orjson
from rich.console import Console
from rich.table import Table

from gateway.chaos.endings import End
from gateway.chaos.run import ChaosPlan, Verdict, run_once
from gateway.stack.signals import until_signal


def run_chaos(minutes: float, seed: int, json_file: Path | None) -> int:
    """Return 0 where everything ended as it may, 1 where not. Raises StackError where it cannot run."""
    console = Console(highlight=False)
    verdict = asyncio.run(until_signal(run_once(ChaosPlan(60.0 * minutes, seed, console.print))))
    if json_file is not None:
        json_file.write_bytes(orjson.dumps(verdict.as_json(), option=orjson.OPT_INDENT_2) + b"\n")
    _print(console, verdict)
    return 1 if verdict.problems else 0


def _print(console: Console, verdict: Verdict) -> None:
    ends = get_args(End)
    table = Table("turns", *ends)
    for kind, counts in verdict.turns.items():
        table.add_row(kind, *(str(counts.get(end, 0)) for end in ends))
    console.print(table)
    for reason, num in verdict.reasons.items():
        console.print(f"{num:6} × {reason}", markup=False)
    steps, counted = verdict.steps, verdict.steps_counted_as_lost
    console.print(f"{len(verdict.faults)} faults")
    console.print(
        f"{verdict.num_published} publishes acknowledged, "
        f"{verdict.num_publishes_not_answered} not answered or in conflict"
    )
    console.print(
        f"trace steps missing {steps.missing}, counted as lost {counted:.0f}; of turns at killed workers "
        f"{steps.excused}, of {steps.num_unknown} turns unknown"
    )
    for name, rise in verdict.growth_mib.items():
        console.print(f"memory of {name}: {rise:+.1f} MiB")
    if not verdict.growth_mib:
        console.print("memory: nothing can be said, no process lived for three minutes")
    for problem in verdict.problems:
        console.print(f"PROBLEM {problem}", markup=False)
    console.print("good" if not verdict.problems else f"{len(verdict.problems)} problems")
