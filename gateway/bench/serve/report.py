"""The figures of ``gravity bench serve`` as JSON and as tables for people."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from gateway.bench.serve.engines import OURS
from gateway.bench.serve.figures import engine_figures, ratios
from gateway.bench.serve.measure import Served, ServePlan

AIMS = {"transformers-cb": 2.5, "vllm": 1.5}
"""What we want to be faster by, in tokens a second of processor time."""


def report_of(served: Served, plan: ServePlan) -> dict[str, Any]:
    """Return everything, ready for JSON."""
    figures = {name: engine_figures(blocks) for name, blocks in served.blocks.items()}
    return {
        "setting": {
            "model": plan.setting.model_folder.name,
            "threads": plan.setting.num_threads,
            "arrivals": plan.arrivals.described,
            "mix": dict(plan.shares),
            "requests_per_block": plan.num_requests,
            "blocks": plan.num_blocks,
            "seed": plan.seed,
            "load_average_before_and_after": served.load,
        },
        "left_out": served.left_out,
        "notes": dict(served.notes),
        "engines": {name: asdict(each) for name, each in figures.items()},
        "ours_to": {
            name: asdict(ratios(served.blocks[OURS], blocks)) | {"aim": AIMS.get(name)}
            for name, blocks in served.blocks.items()
            if name != OURS
        },
    }


def print_report(report: dict[str, Any], console: Console) -> None:
    """Print one table of engines, one of ratios, and what was left out."""
    setting = report["setting"]
    table = Table(
        *("engine", "tokens/s", "requests/s", "CPU s a block", "tokens a CPU s"),
        *("first token s, p50 / p99", "a token ms, p50 / p99"),
        title=f"{setting['model']}, {setting['threads']} thread(s), {setting['arrivals']}",
    )
    for name, row in report["engines"].items():
        rates = (_shown(row[key]) for key in ("tokens_per_s", "requests_per_s", "cpu_s_per_block"))
        first, each = row["all"]["first_token_s"], row["all"]["per_token_s"]
        table.add_row(
            name,
            *rates,
            _shown(row["tokens_per_cpu_s"]),
            f"{first['p50']:.2f} / {first['p99']:.2f}",
            f"{1e3 * each['p50']:.1f} / {1e3 * each['p99']:.1f}",
        )
    console.print(table)
    if report["ours_to"]:
        compared = Table("ours to", "tokens/s", "tokens a CPU s", "aim", "first token", "a token")
        for name, row in report["ours_to"].items():
            keys = ("first_token_speed", "per_token_speed")
            aim = "" if row["aim"] is None else f"{row['aim']:g}"
            shown = (_shown(row["throughput"]), _shown(row["tokens_per_cpu_s"]), aim)
            compared.add_row(name, *shown, *(_shown(row[key]) for key in keys))
        console.print(compared)
    for name, note in report["notes"].items():
        console.print(f"{name}: {note}")
    for reason in report["left_out"]:
        console.print(f"left out: {reason}")


def _shown(interval: dict[str, float]) -> str:
    return f"{interval['mean']:.3g} [{interval['low']:.3g}, {interval['high']:.3g}]"
