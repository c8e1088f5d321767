"""``gravity diagnose --task T``: the same over many turns, counted."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from redis.asyncio import Redis

from gateway.diagnose.read import case_of
from gateway.errors import TraceError
from gateway.lab.diagnosis.case import Finding
from gateway.lab.diagnosis.diagnose import Pattern, diagnose, patterns
from gateway.trace.query import TurnQuery, TurnSummaryRow, find_turns
from gateway.trace.reading import read_record
from gateway.trace.steps import read_steps

PAGE = 32
"""Turns that are read at once."""


@dataclass(frozen=True, slots=True)
class TaskDiagnosis:
    """What is wrong with a task's turns. Of ``num_unread`` the record or steps are damaged or gone."""

    num_turns: int
    num_sound: int
    """Turns without a finding."""
    num_unread: int
    patterns: tuple[Pattern, ...]


async def diagnose_task(redis: Redis, query: TurnQuery) -> TaskDiagnosis:
    """Diagnose every turn of ``query``. Raises TraceError where there is none."""
    rows = await find_turns(redis, query)
    if not rows:
        raise TraceError("no turn matches: another task, another Redis, or too short a time")
    diagnosed: list[tuple[str, tuple[Finding, ...]]] = []
    for start in range(0, len(rows), PAGE):
        found = await asyncio.gather(*(_findings(redis, row) for row in rows[start : start + PAGE]))
        diagnosed += [each for each in found if each is not None]
    return TaskDiagnosis(
        len(diagnosed),
        sum(not findings for _, findings in diagnosed),
        len(rows) - len(diagnosed),
        patterns(diagnosed),
    )


async def _findings(redis: Redis, row: TurnSummaryRow) -> tuple[str, tuple[Finding, ...]] | None:
    try:
        record = await read_record(redis, row.id)
        if record is None:
            return None
        return row.id, diagnose(case_of(record, await read_steps(redis, row.id)))
    except TraceError:
        return None
