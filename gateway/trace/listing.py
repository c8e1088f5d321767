"""``gravity trace list``."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict

import orjson
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gateway.trace.moments import as_moment
from gateway.trace.query import TurnQuery, TurnSummaryRow, find_turns
from gateway.trace.reading import reading

SHA_LENGTH = 8


def run_list(query: TurnQuery, redis_url: str) -> int:
    """Print the turns of ``query`` as a table, and how long it took to find them."""
    rows, taken_s = asyncio.run(_found(query, redis_url))
    console = Console(highlight=False)
    table = turn_table(rows)
    # A narrower terminal breaks the lines, so that an id can still be copied whole.
    needed = Console(width=1_000).measure(table).maximum
    Console(highlight=False, width=max(needed, console.width)).print(table)
    console.print(_how_many(len(rows), query, taken_s))
    return 0


def run_list_json(query: TurnQuery, redis_url: str) -> int:
    """Print each turn's entry as a line of JSON, and to stderr how long it took to find them."""
    rows, taken_s = asyncio.run(_found(query, redis_url))
    for row in rows:
        print(orjson.dumps(asdict(row)).decode())
    print(_how_many(len(rows), query, taken_s), file=sys.stderr)
    return 0


def turn_table(rows: Sequence[TurnSummaryRow]) -> Table:
    """One row a turn."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("time", "id", "task", "lane", "config", "model"):
        table.add_column(name, no_wrap=True, max_width=20 if name == "model" else None)
    for name in ("tokens", "first", "latency", "H nats", "tau"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("status", no_wrap=True)
    for row in rows:
        table.add_row(*map(Text, cells(row)))
    return table


def cells(row: TurnSummaryRow) -> tuple[str, ...]:
    """Return a turn's cells as text: times in seconds, ``tokens`` of the context before and after pruning."""
    return (
        as_moment(row.received_at),
        row.id,
        row.task or "–",
        f"{row.lane} (shadow)" if row.shadow_of else row.lane,
        row.config_sha[:SHA_LENGTH],
        row.model,
        f"{row.tokens_before}→{row.tokens_after}",
        _number(row.time_to_first_token_s, "{:.2f}s"),
        _number(row.latency_s, "{:.2f}s"),
        _number(row.mean_entropy_nats, "{:.2f}"),
        _number(row.entropic_time_nats, "{:.1f}"),
        row.status + (f" ({row.error_code})" if row.error_code else ""),
    )


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else form.format(value)


async def _found(query: TurnQuery, redis_url: str) -> tuple[tuple[TurnSummaryRow, ...], float]:
    async with reading(redis_url) as redis:
        await redis.ping()
        started_s = time.perf_counter()
        rows = await find_turns(redis, query)
        return rows, time.perf_counter() - started_s


def _how_many(num_rows: int, query: TurnQuery, taken_s: float) -> str:
    more = ", the limit: there may be more" if query.limit == num_rows else ""
    return f"{num_rows} turns in {taken_s * 1e3:.0f} ms{more}"
