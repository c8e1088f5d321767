"""The steps of a choice as a table and as charts, for a terminal of any width."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gateway.trace.chart import Panel, draw_panel
from worker.protocol import StepRecord

MAX_CHART_WIDTH = 100


def step_table(steps: Sequence[StepRecord], tokens: Sequence[str] = ()) -> Table:
    """One row a step. ``tokens`` gives their text; without it the ids are shown."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("step", justify="right")
    table.add_column("token", max_width=18, no_wrap=True)
    has_dropped = any(step.kept_share < 1.0 for step in steps)
    for name in ("H nats", "G", "k", "p", "T", "bias", "logprob", *(["blocks"] if has_dropped else [])):
        table.add_column(name, justify="right")
    for number, step in enumerate(steps):
        token = repr(tokens[number])[1:-1] if number < len(tokens) else f"#{step.token_id}"
        table.add_row(
            str(number),
            Text(token),
            _with_half_width(step),
            f"{step.gravity:.3f}",
            str(step.k),
            f"{step.p:.2f}",
            f"{step.temperature:.2f}",
            f"{step.bias_nats:+.2f}",
            f"{step.logprob:.2f}",
            *([f"{step.kept_share:.0%}"] if has_dropped else []),
        )
    return table


def _with_half_width(step: StepRecord) -> str:
    """H as it was measured, or as it was estimated and how well."""
    width = step.entropy_half_width_nats
    return f"{step.entropy_nats:.3f} ±{width:.3f}" if width else f"{step.entropy_nats:.3f}"


def step_panels(steps: Sequence[StepRecord]) -> list[Panel]:
    """H, G and k, each on an axis of its own."""
    entropies = [step.entropy_nats for step in steps]
    gravities = [step.gravity for step in steps]
    widths = [float(step.k) for step in steps]
    floor = min(0.9, max(0.0, math.floor(10 * min(gravities, default=0.0)) / 10))
    return [
        Panel("H  entropy, nats", entropies, 0.0, max(1.0, *entropies)),
        Panel("G  gravity = 1 - H / ln V", gravities, floor, 1.0),
        Panel("k  candidates kept", widths, 0.0, max(1.0, *widths), "{:.0f}"),
    ]


def print_steps(console: Console, steps: Sequence[StepRecord], tokens: Sequence[str] = ()) -> None:
    """The table, then the charts."""
    console.print(step_table(steps, tokens))
    width = min(console.width, MAX_CHART_WIDTH)
    for panel in step_panels(steps):
        console.print()
        for line in draw_panel(panel, width=width):
            console.print(Text(line), no_wrap=True, crop=True)
