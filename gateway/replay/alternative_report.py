"""A turn under another configuration as people and as programs read it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gateway.replay.alternative import Alternative, ChoicePair
from gateway.replay.side import Means, Side

STEPS_BEFORE, STEPS_AFTER = 3, 8


def print_alternative(console: Console, alternative: Alternative) -> None:
    """What is asked then and now, where the answers part, both of them, and their figures side by side."""
    for line in request_lines(alternative):
        console.print(Text(line))
    for pair in alternative.choices:
        if len(alternative.choices) > 1:
            console.rule(f"choice {pair.choice}")
        console.print(Text(f"compared with: {pair.base.how}"))
        console.print(Text(verdict(pair)))
        console.print()
        console.print(steps_around(pair))
        console.print()
        console.print(means_table(pair.base.side.means, pair.now.means))
        for name, text in (("then", pair.base.side.text), ("now", pair.now.text)):
            if pair.divergence is not None:
                console.rule(name)
                console.print(Text(text))


def request_lines(alternative: Alternative) -> tuple[str, ...]:
    """What the other configuration asks of the worker, and by what that differs."""
    kept_then, kept_now = alternative.kept_then, alternative.kept_now
    lines = [
        f"turn {alternative.turn_id}, task {alternative.task}, lane {alternative.lane}: "
        f"configuration {alternative.sha_then[:8]} then, {alternative.sha_now[:8]} now",
        f"documents kept: {len(kept_then)} of {alternative.num_documents} then, {len(kept_now)} now"
        + _difference(kept_then, kept_now),
        f"prompt tokens: {alternative.prompt_tokens_then} then, {alternative.prompt_tokens_now} now"
        + ("; the prompt is the same" if alternative.is_prompt_same else ""),
    ]
    changes = alternative.setting_changes
    lines += [f"  {change.name}: {_shown(change.then)} -> {_shown(change.now)}" for change in changes]
    if not changes:
        lines.append("controls and sampling are the same")
    lines += [f"pruning: {note}" for note in alternative.notes]
    if alternative.gateway_changes:
        lines.append(
            f"this gateway differs from the one that served it: {', '.join(alternative.gateway_changes)}"
        )
    if alternative.is_request_same:
        lines.append("UNCHANGED: the worker is asked for the same, so nothing was decoded")
    return tuple(lines)


def verdict(pair: ChoicePair) -> str:
    """One sentence: the same answer, or the first step at which it is another."""
    if pair.divergence is None:
        return f"the answer is THE SAME: {len(pair.now.tokens)} tokens"
    step = pair.divergence
    then, now = pair.base.side.token_at(step), pair.now.token_at(step)
    return f"the answers PART at step {step}: {then} then, {now} now"


def steps_around(pair: ChoicePair) -> Table:
    """Both answers around the first step that differs, or from the beginning where none does."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("step", justify="right")
    for name in ("then", "now"):
        table.add_column(name, max_width=18, no_wrap=True)
        for quantity in ("H", "G", "k"):
            table.add_column(quantity, justify="right")
    at = pair.divergence or 0
    last = max(len(pair.base.side.tokens), len(pair.now.tokens))
    for step in range(max(0, at - STEPS_BEFORE), min(last, at + STEPS_AFTER + 1)):
        mark = ">" if step == pair.divergence else ""
        cells = [*_cells(pair.base.side, step), *_cells(pair.now, step)]
        table.add_row(f"{mark}{step}", *map(Text, cells))
    return table


def means_table(then: Means, now: Means) -> Table:
    """The figures over all steps, side by side."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("", "then", "now", "difference"):
        table.add_column(name, justify="right" if name else "left")
    for name, field, form in (
        ("tokens", "num_tokens", "{:.0f}"),
        ("mean H, nats", "entropy_nats", "{:.3f}"),
        ("mean G", "gravity", "{:.3f}"),
        ("mean k", "k", "{:.1f}"),
        ("tau, nats", "entropic_time_nats", "{:.2f}"),
    ):
        before, after = getattr(then, field), getattr(now, field)
        signed = form.replace(":", ":+")
        table.add_row(name, form.format(before), form.format(after), signed.format(after - before))
    return table


def as_json(alternative: Alternative) -> dict[str, Any]:
    """The same for a file."""
    written = asdict(alternative)
    for pair, choice in zip(alternative.choices, written["choices"], strict=True):
        choice |= {
            "changes_answer": pair.divergence is not None,
            "means_then": asdict(pair.base.side.means),
            "means_now": asdict(pair.now.means),
        }
    return written | {
        "is_request_same": alternative.is_request_same,
        "changes_documents": alternative.changes_documents,
        "changes_answer": alternative.changes_answer,
    }


def _cells(side: Side, step: int) -> tuple[str, ...]:
    if step >= len(side.tokens):
        return (side.token_at(step) if step == len(side.tokens) else "", "", "", "")
    token = side.token_at(step)
    return (token, f"{side.entropies_nats[step]:.3f}", f"{side.gravities[step]:.3f}", f"{side.ks[step]:.0f}")


def _difference(then: Sequence[str], now: Sequence[str]) -> str:
    marks = [f"+{each}" for each in now if each not in then] + [
        f"-{each}" for each in then if each not in now
    ]
    return f" ({' '.join(marks)})" if marks else ""


def _shown(value: Any) -> str:
    return "not set" if value is None else repr(value)
