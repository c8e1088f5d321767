"""``gravity trace show ID``."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias

from redis.asyncio import Redis
from rich.console import Console
from rich.text import Text

from gateway.errors import TraceError
from gateway.trace.moments import as_moment
from gateway.trace.reading import read_record, reading
from gateway.trace.steps import ChoiceSteps, read_steps
from gateway.trace.table import print_steps

TokenTexts: TypeAlias = Callable[[Redis, Sequence[ChoiceSteps]], Awaitable[Mapping[int, Sequence[str]]]]
"""The text of each step's token by choice; what is not known lacks."""
FIGURES = (
    ("entropic_time_nats", "tau"),
    ("net_drop_nats", "net drop"),
    ("envelope_nats", "envelope"),
    ("mean_entropy_nats", "mean H"),
)


def run_show(turn_id: str, redis_url: str, texts: TokenTexts | None = None) -> int:
    """Print what is there of the turn: its record in short, then its steps.

    Raises TraceError where there are none.
    """
    asyncio.run(_show(turn_id, redis_url, texts))
    return 0


async def _show(turn_id: str, redis_url: str, texts: TokenTexts | None) -> None:
    console = Console(highlight=False)
    async with reading(redis_url) as redis:
        record = await read_record(redis, turn_id)
        choices = await read_steps(redis, turn_id)
        if not any(choice.steps for choice in choices):
            raise TraceError(f"no steps of turn {turn_id!r}: a wrong id, or older than the traces' lifetime")
        tokens = await texts(redis, choices) if texts is not None else {}
    for line in opening(record) if record is not None else ():
        console.print(Text(line))
    for choice in choices:
        console.rule(f"choice {choice.choice}, {choice.finish_reason or 'still running'}")
        print_steps(console, choice.steps, tokens.get(choice.choice, ()))


def opening(record: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the record in a few lines: under what it ran, what came of it, the figures of its entropy."""
    outcome = record["outcome"]
    verdicts = record["prune_report"]["verdicts"]
    task, lane = (record["task"] or {}).get("task_type", "–"), record["assignment"]["lane"]
    kept = sum(verdict["is_kept"] for verdict in verdicts)
    error = f" ({outcome['error_code']})" if outcome["error_code"] else ""
    figures = (
        f"{name} {outcome[field]:.2f} nats" for field, name in FIGURES if outcome.get(field) is not None
    )
    return (
        f"{as_moment(record['received_at'])}  task {task}, lane {lane}, config {record['config_sha'][:8]}, "
        f"model {record['model']}",
        f"{outcome['status']}{error} after {outcome['latency_s']:.2f} s: "
        f"{kept} of {len(verdicts)} documents kept, {outcome['prompt_tokens']} tokens in, "
        f"{outcome['completion_tokens']} out, seed {outcome['seed']}, "
        f"{','.join(outcome['finish_reasons']) or '–'}",
        ", ".join(figures),
    )
