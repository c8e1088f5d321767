"""The figures of ``gravity bench rag`` as JSON and as a table for people."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from gateway.bench.rag.asking import MAX_TOKENS
from gateway.bench.rag.figures import AIMS, ARMS, DESCRIPTIONS, RIVAL, arm_figures
from gateway.bench.rag.measure import Measured, RagPlan
from gateway.evaluation.scoring import RULE


def report_of(measured: Measured, plan: RagPlan) -> dict[str, Any]:
    """Return everything, ready for JSON."""
    return {
        "setting": {
            "model": plan.model_folder.name,
            "worker_dtype": measured.worker_dtype,
            "rival_dtype": measured.rival_dtype,
            "questions": plan.num_questions,
            "rounds": plan.num_rounds,
            "seed": plan.seed,
            "tokens_written": MAX_TOKENS,
            "load_average_before_and_after": measured.load,
            "scoring": RULE,
        },
        "arms": {
            arm: asdict(arm_figures(measured.asked, arm))
            | {"aim": AIMS.get(arm), "description": DESCRIPTIONS[arm]}
            for arm in ARMS
        },
        "questions": [asdict(each) for each in measured.asked],
    }


def print_report(report: dict[str, Any], console: Console) -> None:
    """Print one row an arm, and what is to be known of the columns."""
    setting = report["setting"]
    table = Table(
        *("", "wall s", "CPU s", "faster, wall", "faster, CPU", "aim", "right", f"less {RIVAL}'s"),
        *("chunks", "prompt", "of it known", "encodings found"),
        title=f"{setting['model']}, worker {setting['worker_dtype']}, {RIVAL} {setting['rival_dtype']}",
    )
    for arm, row in report["arms"].items():
        table.add_row(
            arm,
            *(f"{row[name]['mean']:.2f}" for name in ("wall_s", "cpu_s")),
            *(_shown(row[name]) for name in ("speedup_wall", "speedup_cpu")),
            "" if row["aim"] is None else f"{row['aim']:g}",
            *(_shown(row[name]) for name in ("answer_rate", "rate_difference")),
            *(f"{row[name]:,.1f}" for name in ("num_chunks", "prompt_tokens", "cached_prompt_tokens")),
            f"{row['num_encodings_found']:.1f}",
        )
    console.print(table)
    for arm, row in report["arms"].items():
        console.print(f"{arm}: {row['description']}")


def _shown(interval: dict[str, float] | None) -> str:
    if interval is None:
        return ""
    return f"{interval['mean']:.2f} [{interval['low']:.2f}, {interval['high']:.2f}]"
