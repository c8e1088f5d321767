"""A report as a person reads it: the verdict first, then what it rests on."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gateway.lab.findings import Comparison, ExperimentReport, MetricFindings, ShadowFindings
from gateway.lab.intervals import Interval
from gateway.lab.metrics import Metric
from gateway.lab.wording import bounds, counted, decimals, mean_words, metric_name

_EXPLANATION = """\
A unit counts once, with the mean of its turns. The intervals hold at all times: look as often as you like. \
CUPED: adjusted by the unit's period before, with what is left of the variance."""
_MIN_COLUMNS = 140


def wide_console() -> Console:
    """Return a console in which no number is cut off: a narrower terminal breaks the lines itself."""
    return Console(highlight=False, soft_wrap=True, width=max(_MIN_COLUMNS, Console().width))


def print_report(console: Console, report: ExperimentReport) -> None:
    """Print all of the report."""
    state = "active" if report.is_active else "not active"
    console.print(Text(f"experiment {report.experiment}, version {report.version} ({state})"))
    console.print()
    console.print(Text(report.verdict.text, style="bold"))
    for note in report.notes:
        console.print(Text(f"note: {note}"))
    for guardrail in report.guardrails:
        console.print(Text(f"guardrail: {guardrail.sentence}", style="bold" if guardrail.is_broken else ""))
    console.print()
    _print_sizes(console, report)
    if report.metrics:
        console.print()
        console.print(_metrics(report.metrics, f"{100.0 * (1.0 - report.alpha):.4g} %", report.control))
        console.print(Text(_EXPLANATION))
    if report.shadows:
        console.print()
        console.print(Text(f"against {report.control}'s answers to the same requests (shadow turns)"))
        console.print(_shadows(report.shadows))


def _print_sizes(console: Console, report: ExperimentReport) -> None:
    ratio = report.sample_ratio
    sizes = ", ".join(
        f"{arm} {counted(count, 'unit')} of {ratio.expected[arm]:,.0f} expected"
        for arm, count in ratio.counts.items()
    )
    fits = "does NOT fit" if ratio.is_alarm else "fits"
    console.print(
        Text(f"sizes: {sizes}; {fits} (p = {ratio.p_value:.2g}; for all looks {ratio.anytime_p_value:.2g})")
    )


def _metrics(metrics: Sequence[MetricFindings], level: str, control: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("metric", "better", "arm"):
        table.add_column(name)
    for name in ("units", "turns", "mean", f"minus {control}", f"{level} interval", "relative", "CUPED"):
        table.add_column(name, justify="right", no_wrap=True)
    for found in metrics:
        name, better = metric_name(found.metric.name), found.metric.better
        compared = {each.arm: each for each in found.comparisons}
        for arm in found.arms:
            sizes = (f"{arm.num_units:,}", f"{arm.num_turns:,}", mean_words(found.metric, arm.mean.mean))
            compared_with = _compared(found.metric, compared.get(arm.arm))
            table.add_row(Text(name), better, Text(arm.arm), *sizes, *compared_with)
    return table


def _compared(metric: Metric, comparison: Comparison | None) -> tuple[str, ...]:
    if comparison is None:
        return ("", "", "", "")
    relative = "" if comparison.relative is None else f"{comparison.relative:+.1%}"
    cuped = "" if comparison.cuped is None else f"{1.0 - comparison.cuped.variance_reduction:.0%}"
    return (*_difference(metric, comparison.difference), relative, cuped)


def _shadows(shadows: Sequence[ShadowFindings]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("metric")
    table.add_column("arm")
    for name in ("units", "pairs", "difference", "interval"):
        table.add_column(name, justify="right", no_wrap=True)
    for found in shadows:
        sizes = (f"{found.num_units:,}", f"{found.num_pairs:,}")
        words = _difference(found.metric, found.difference)
        table.add_row(metric_name(found.metric.name), Text(found.arm), *sizes, *words)
    return table


def _difference(metric: Metric, difference: Interval) -> tuple[str, str]:
    """A share's difference is in percentage points."""
    if math.isnan(difference.mean):
        return "", ""
    scale = 100.0 if metric.unit == "share" else 1.0
    mean, low, high = (scale * each for each in (difference.mean, difference.low, difference.high))
    return f"{mean:+.{decimals(mean, low, high)}f}", bounds(metric, difference.low, difference.high)
