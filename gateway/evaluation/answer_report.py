"""What the answers came to, for programs and for people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gateway.evaluation.answer_figures import AnswerFigures, ArmFigures
from gateway.evaluation.answer_results import Header
from gateway.evaluation.arms import ARMS, DESCRIPTIONS, Arm
from gateway.evaluation.scoring import RULE
from gateway.lab.intervals import Interval


def answers_as_json(figures: AnswerFigures, header: Header, seed: int) -> dict[str, Any]:
    """Return rates in [0, 1], means over requests, seconds; intervals hold with 95 % confidence."""
    return {
        "arms": {arm: _arm(found) for arm, found in figures.arms.items()},
        "differences": {
            f"ours_minus_{rival}": _interval(found) for rival, found in figures.differences.items()
        },
        "cpu_ratio": {"ours_to_all": _interval(figures.cpu_ratio)},
        "sets": {
            name: {
                "num_requests": found.num_requests,
                "answer_rate": dict(found.answer_rate),
                "differences": _differences(found.differences),
            }
            for name, found in figures.sets.items()
        },
        "num_requests": figures.num_requests,
        "num_truncated": figures.arms["all"].num_truncated,
        "model": header.model,
        "max_context": header.max_context,
        "dtype": header.dtype,
        "prompt": {
            "preamble": header.preamble,
            "template": header.template,
            "question": header.question,
            "max_tokens": header.max_tokens,
        },
        "data_sha": header.data_sha,
        "scoring": RULE,
        "methods": dict(DESCRIPTIONS),
        "seed": seed,
    }


def print_answers(console: Console, figures: AnswerFigures, header: Header) -> None:
    """Print the arms, what ours gains, and each set.

    Times are means in seconds with choosing the chunks included; the last column is its processor time alone.
    """
    console.print(Text(f"{figures.num_requests} requests, {header.model}, {header.dtype}, greedy"))
    console.print(_arms(figures))
    for rival, difference in figures.differences.items():
        console.print(Text(f"answer rate, ours - {rival}: {_signed(difference)}"))
    ratio = figures.cpu_ratio
    console.print(
        Text(f"CPU time, ours / all: {ratio.mean:.3f} [{ratio.low:.3f}, {ratio.high:.3f}], nothing cached")
    )
    console.print(_sets(figures))
    if num_truncated := figures.arms["all"].num_truncated:
        console.print(
            Text(
                f"in {num_truncated} requests not all chunks fit the context of {header.max_context} tokens: "
                "the arm 'all' had as many as do, from the first"
            )
        )
    console.print(Text(RULE))


def _arms(figures: AnswerFigures) -> Table:
    table = _table("", "right", "95 %", "chunks", "tokens", "first s", "total s", "CPU s", "choosing")
    for arm, found in figures.arms.items():
        rate = found.answer_rate
        table.add_row(
            arm,
            f"{rate.mean:.3f}",
            f"{rate.low:.3f}-{rate.high:.3f}",
            f"{found.num_documents:.1f}",
            f"{found.prompt_tokens:,.0f}",
            f"{found.ttft_s:.2f}",
            f"{found.total_s:.2f}",
            f"{found.cpu_s:.2f}",
            f"{found.choose_cpu_s:.2f}",
        )
    return table


def _sets(figures: AnswerFigures) -> Table:
    table = _table("right", "n", *ARMS, "ours - all")
    for name, found in figures.sets.items():
        rates = [f"{found.answer_rate[arm]:.3f}" for arm in ARMS]
        table.add_row(name, str(found.num_requests), *rates, _bounded(found.differences["all"]))
    return table


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for index, name in enumerate(columns):
        table.add_column(name, justify="right" if index else "left", no_wrap=True)
    return table


def _signed(found: Interval) -> str:
    verdict = "" if found.excludes_zero else ", may be 0"
    return f"{_bounded(found)}{verdict}"


def _bounded(found: Interval) -> str:
    return f"{found.mean:+.3f} [{found.low:+.3f}, {found.high:+.3f}]"


def _arm(found: ArmFigures) -> dict[str, Any]:
    rate = found.answer_rate
    return {**asdict(found), "answer_rate": rate.mean, "interval": [rate.low, rate.high]}


def _differences(found: Mapping[Arm, Interval]) -> dict[str, Any]:
    return {f"ours_minus_{rival}": _interval(difference) for rival, difference in found.items()}


def _interval(found: Interval) -> dict[str, Any]:
    return {**asdict(found), "excludes_zero": found.excludes_zero}
