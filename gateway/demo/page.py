"""What the demo prints. Plain text and simple tables: a pipe and 80 columns are enough."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gateway.demo.client import Answer

Row: TypeAlias = tuple[str, Callable[[Answer], str]]


def print_documents(console: Console, gravity: Mapping[str, Any]) -> None:
    """One row a document, kept or dropped, with score and reason; then the tokens before and after."""
    table = _table(
        ("", "left"), ("document", "left"), ("score", "right"), ("tokens", "right"), ("why", "left")
    )
    for document in gravity["documents"]:
        verdict = Text("keep", style="bold green") if document["kept"] else Text("drop", style="dim")
        score, tokens = f"{document['score']:.2f}", str(document["tokens"])
        table.add_row(verdict, Text(document["id"]), score, tokens, Text(_why(document)))
    console.print(table)
    before, after = gravity["tokens_before"], gravity["tokens_after"]
    share = 1 - after / before if before else 0.0
    console.print(f"\ntokens of the documents: {before} before, {after} after ({share:.0%} less)")


def _why(document: Mapping[str, Any]) -> str:
    """The reason, and the sentence behind it for all but the many that are simply off the theme."""
    reason = str(document["reason"])
    is_plain = reason == "off_theme" or not document["detail"]
    return reason.replace("_", " ") + ("" if is_plain else f": {document['detail']}")


def print_turn(console: Console, gravity: Mapping[str, Any]) -> None:
    """How the request was understood, and where it went."""
    expected = gravity["expected_s"]
    rows = {
        "turn": gravity["turn_id"],
        "lane": gravity["lane"],
        "task": gravity["task"],
        "config sha": gravity["config_sha"],
        "bucket": f"{gravity['bucket']}, expected s {expected:.3f}"
        if expected is not None
        else gravity["bucket"],
        "theme": ", ".join(gravity["theme"] or ["none"]),
    }
    for name, value in rows.items():
        console.print(Text(f"{name:<11}{value}"))


def print_lanes(console: Console, answers: Sequence[Answer]) -> None:
    """The lanes side by side: what went in, how long it took, what was measured, what was said."""
    rows: Sequence[Row] = (
        ("documents", lambda answer: str(sum(d["kept"] for d in answer.first_gravity["documents"]))),
        ("prompt tokens", lambda answer: str(answer.usage["prompt_tokens"])),
        ("answer tokens", lambda answer: str(answer.usage["completion_tokens"])),
        ("time to first token", lambda answer: f"{answer.time_to_first_token_s * 1000:.0f} ms"),
        ("total", lambda answer: f"{answer.total_s * 1000:.0f} ms"),
        ("mean H", lambda answer: f"{answer.last_gravity['mean_entropy_nats']:.3f} nats"),
        ("mean G", lambda answer: f"{answer.last_gravity['mean_gravity']:.3f}"),
        ("entropic time", lambda answer: f"{answer.last_gravity['entropic_time_nats']:.2f} nats"),
    )
    lanes = [str(answer.first_gravity["lane"]) for answer in answers]
    table = _table(("", "left"), *((lane, "right") for lane in lanes))
    for name, value in rows:
        table.add_row(name, *(value(answer) for answer in answers))
    console.print(table)
    for lane, answer in zip(lanes, answers, strict=True):
        console.print(Text(f"\n{lane}: {answer.text.strip()}"))
    console.print()


def _table(*columns: tuple[str, str]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name, justify in columns:
        table.add_column(name, justify="right" if justify == "right" else "left")
    return table
