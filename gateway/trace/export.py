"""``gravity trace export``: whole turns as lines of JSON."""

from __future__ import annotations

import asyncio
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

import orjson
from redis.asyncio import Redis
from tqdm import tqdm

from gateway.errors import TraceError
from gateway.trace.query import TurnQuery, iterate_turns
from gateway.trace.reading import read_record, reading
from gateway.trace.steps import ChoiceSteps, read_steps
from worker.protocol import STEP_COLUMNS


def run_export(query: TurnQuery, redis_url: str, file: Path | None) -> int:
    """Write a line for every turn of ``query``, as they are found, to ``file`` or stdout."""
    with ExitStack() as stack:
        try:
            output = stack.enter_context(file.open("wb")) if file is not None else sys.stdout.buffer
        except OSError as error:
            raise TraceError(f"{file} cannot be written: {error.strerror}") from error
        num_lines = asyncio.run(_export(query, redis_url, output))
        output.flush()
    print(f"{num_lines} turns exported", file=sys.stderr)
    return 0


async def _export(query: TurnQuery, redis_url: str, output: BinaryIO) -> int:
    num_lines = 0
    async with reading(redis_url) as redis:
        # The total is not known before the last one is found.
        with tqdm(desc="export", unit=" turns", file=sys.stderr) as progress:
            async for row in iterate_turns(redis, query):
                output.write(orjson.dumps(await exported(redis, row.id), option=orjson.OPT_APPEND_NEWLINE))
                num_lines += 1
                progress.update()
    return num_lines


async def exported(redis: Redis, turn_id: str) -> dict[str, Any]:
    """Return ``{"id", "turn", "choices", "trace_problem"}`` as ``GET /admin/turns/{id}`` has them.

    ``turn`` is null where the record's lifetime is over.
    """
    choices: tuple[ChoiceSteps, ...] = ()
    problem = None
    try:
        choices = await read_steps(redis, turn_id)
    except TraceError as error:
        problem = str(error)
    return {
        "id": turn_id,
        "turn": await read_record(redis, turn_id),
        "choices": [as_columns(choice) for choice in choices],
        "trace_problem": problem,
    }


def as_columns(choice: ChoiceSteps) -> dict[str, Any]:
    """Return the steps of a choice as one list a quantity."""
    return {
        "choice": choice.choice,
        "finish_reason": choice.finish_reason,
        "num_steps": len(choice.steps),
        "steps": {name: [getattr(step, name) for step in choice.steps] for name in STEP_COLUMNS},
    }
