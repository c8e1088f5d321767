"""The figures of ``gravity bench ablation`` as JSON and as a table for people."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from gateway.bench.ablation.arms import BASELINE
from gateway.bench.ablation.figures import FIGURES, arm_figures
from gateway.bench.ablation.measure import Ablated, AblationPlan


def report_of(ablated: Ablated, plan: AblationPlan) -> dict[str, Any]:
    """Return everything, ready for JSON."""
    baseline = ablated.blocks[BASELINE.name]
    return {
        "setting": asdict(plan) | {"load_average_before_and_after": ablated.load},
        "arms": {name: asdict(arm_figures(blocks, baseline)) for name, blocks in ablated.blocks.items()},
    }


def print_report(report: dict[str, Any], console: Console) -> None:
    """Print ratios to the baseline, and below them the baseline's own figures."""
    table = Table("ratio to the baseline", *FIGURES)
    for name, arm in report["arms"].items():
        table.add_row(name, *(_shown(arm["ratios"][figure]) for figure in FIGURES))
    own = report["arms"][BASELINE.name]["values"]
    table.add_row("baseline's own", *(_shown(own[figure]) for figure in FIGURES))
    console.print(table)


def _shown(interval: dict[str, float] | None) -> str:
    if interval is None:
        return "–"
    return f"{interval['mean']:.3g} [{interval['low']:.3g}, {interval['high']:.3g}]"
