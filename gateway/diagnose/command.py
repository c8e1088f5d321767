"""``gravity diagnose ID | --task T``."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from rich.console import Console

from gateway.diagnose.many import TaskDiagnosis, diagnose_task
from gateway.diagnose.one import TurnDiagnosis, diagnose_turn
from gateway.diagnose.report import print_task, print_turn, task_json, turn_json
from gateway.settings import GatewaySettings
from gateway.stack.environment import redis_to_read
from gateway.stack.signals import until_signal
from gateway.trace.query import TurnQuery
from gateway.trace.reading import reading

SOUND, FOUND = 0, 1


@dataclass(frozen=True, slots=True)
class DiagnoseOptions:
    """``redis_url`` and ``worker_url``: None looks in the environment, then at what ``gravity up`` starts."""

    redis_url: str | None = None
    worker_url: str | None = None
    json_file: Path | None = None
    trace_timeout_s: float = 5.0
    """How long steps that are still written are waited for."""


def run_diagnose(turn_id: str, options: DiagnoseOptions) -> int:
    """Print what is wrong with a turn; return 0 where nothing is and 1 where something was found.

    Raises TraceError (status 2) where it cannot be read.
    """
    diagnosis = asyncio.run(until_signal(_one(turn_id, options)))
    print_turn(Console(highlight=False), diagnosis)
    _write(options.json_file, turn_json(diagnosis))
    return FOUND if diagnosis.findings else SOUND


def run_diagnose_task(query: TurnQuery, options: DiagnoseOptions) -> int:
    """Print what is wrong with the turns of ``query``; the status is as for one turn."""
    task = query.task or "any"
    diagnosis = asyncio.run(until_signal(_many(query, options)))
    print_task(Console(highlight=False), task, diagnosis)
    _write(options.json_file, task_json(task, diagnosis))
    return FOUND if diagnosis.patterns else SOUND


async def _one(turn_id: str, options: DiagnoseOptions) -> TurnDiagnosis:
    candidates = [options.worker_url] if options.worker_url else GatewaySettings().workers
    async with reading(options.redis_url or redis_to_read()) as redis:
        return await diagnose_turn(redis, turn_id, candidates, options.trace_timeout_s)


async def _many(query: TurnQuery, options: DiagnoseOptions) -> TaskDiagnosis:
    async with reading(options.redis_url or redis_to_read()) as redis:
        return await diagnose_task(redis, query)


def _write(path: Path | None, content: Mapping[str, Any]) -> None:
    if path is not None:
        path.write_bytes(orjson.dumps(content, option=orjson.OPT_INDENT_2) + b"\n")
