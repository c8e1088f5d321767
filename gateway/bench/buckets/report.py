"""The figures of ``gravity bench buckets`` as JSON and as tables for people."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from gateway.bench.buckets.arms import BUCKETS, COMPARED, MAX_DRAFTS
from gateway.bench.buckets.figures import compared
from gateway.bench.buckets.measure import BucketsPlan, Measured
from gateway.bench.serve.figures import engine_figures

FIGURES = ("tokens_per_cpu_s", "tokens_per_s", "p50_s", "p99_s")


def report_of(measured: Measured, plan: BucketsPlan) -> dict[str, Any]:
    """Return everything, ready for JSON."""
    blocks = measured.blocks
    return {
        "setting": {
            "model": plan.model_folder.name,
            "arrivals_per_s": plan.rate_per_s,
            "mix": dict(plan.shares),
            "requests_per_block": plan.num_requests,
            "blocks": plan.num_blocks,
            "seed": plan.seed,
            "drafts": plan.drafts,
            "max_draft": plan.max_draft,
            "workers": {name: {"buckets": BUCKETS[name], "max_draft": MAX_DRAFTS[name]} for name in BUCKETS},
            "load_average_before_and_after": measured.load,
        },
        "arms": {name: asdict(engine_figures(each)) for name, each in blocks.items()},
        "compared": {
            f"{ours.name} to {theirs.name}": asdict(compared(blocks[ours.name], blocks[theirs.name]))
            for ours, theirs in COMPARED
            if ours.name in blocks and theirs.name in blocks
        },
        "placed": {name: dict(each) for name, each in measured.placed.items()},
    }


def print_report(report: dict[str, Any], console: Console) -> None:
    """Print a table of arms, one of ratios, and where turns went."""
    setting = report["setting"]
    table = Table(
        *("arm", "tokens a CPU s", "tokens/s", "answer s, p50 / p99", "a token ms, p50 / p99"),
        title=f"{setting['model']}, {setting['arrivals_per_s']:g} a second, drafts: {setting['drafts']}",
    )
    for name, arm in report["arms"].items():
        total, each = arm["all"]["total_s"], arm["all"]["per_token_s"]
        table.add_row(
            name,
            _shown(arm["tokens_per_cpu_s"]),
            _shown(arm["tokens_per_s"]),
            f"{total['p50']:.2f} / {total['p99']:.2f}",
            f"{1e3 * each['p50']:.1f} / {1e3 * each['p99']:.1f}",
        )
    console.print(table)
    ratios = Table("ratio of", "tokens a CPU s", "tokens/s", "p50", "p99")
    for name, row in report["compared"].items():
        ratios.add_row(name, *(_shown(row[figure]) for figure in FIGURES))
    console.print(ratios)
    for name, placed in report["placed"].items():
        console.print(f"gateway {name}: turns by bucket and pool: {placed}")


def _shown(interval: dict[str, float]) -> str:
    return f"{interval['mean']:.3g} [{interval['low']:.3g}, {interval['high']:.3g}]"
