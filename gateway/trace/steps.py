"""Reads the steps of a turn from its stream in Redis."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from redis.asyncio import Redis

from gateway.errors import TraceError
from worker.protocol import StepRecord, trace_key, unpack_steps

PAGE = 500
POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class ChoiceSteps:
    """All steps of one choice, in order. ``finish_reason`` is None while the worker still writes."""

    choice: int
    steps: tuple[StepRecord, ...]
    finish_reason: str | None


async def read_steps(redis: Redis, turn_id: str) -> tuple[ChoiceSteps, ...]:
    """Return what is there now, by choice. Raises TraceError where entries are damaged or lie apart."""
    entries = await _entries(redis, turn_id)
    runs: dict[int, list[tuple[int, list[StepRecord]]]] = defaultdict(list)
    ends: dict[int, Mapping[bytes, bytes]] = {}
    for fields in entries:
        if b"end" in fields:
            ends[int(fields[b"choice"])] = fields
            continue
        try:
            choice, first, records = unpack_steps(fields)
        except (KeyError, ValueError) as error:
            raise TraceError(f"turn {turn_id}: a damaged entry in the trace ({error})") from error
        runs[choice].append((first, records))
    return tuple(
        _joined(turn_id, choice, runs[choice], ends.get(choice)) for choice in sorted(runs.keys() | ends)
    )


async def wait_for_steps(
    redis: Redis, turn_id: str, num_choices: int = 1, *, timeout_s: float = 10.0
) -> tuple[ChoiceSteps, ...]:
    """Return the steps once every choice has ended. The worker writes within 250 ms of a step.

    Raises TraceError where the trace does not become complete in time.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    while True:
        try:
            choices = await read_steps(redis, turn_id)
            reason = f"{len(choices)} of {num_choices} choices are there"
            if len(choices) >= num_choices and all(choice.finish_reason for choice in choices):
                return choices
        except TraceError as error:  # what went by the spill file arrives late
            reason = str(error)
        if loop.time() >= deadline:
            raise TraceError(f"the trace of turn {turn_id} is not complete after {timeout_s:.0f} s: {reason}")
        await asyncio.sleep(POLL_S)


async def _entries(redis: Redis, turn_id: str) -> list[Mapping[bytes, bytes]]:
    entries: list[Mapping[bytes, bytes]] = []
    start = "-"
    while True:
        # A client without decode_responses, so bytes: redis-py's own type covers both.
        page: Any = await redis.xrange(trace_key(turn_id), min=start, count=PAGE)
        if not page:
            return entries
        entries += [fields for _, fields in page]
        start = f"({page[-1][0].decode()}"


def _joined(
    turn_id: str,
    choice: int,
    runs: list[tuple[int, list[StepRecord]]],
    end: Mapping[bytes, bytes] | None,
) -> ChoiceSteps:
    steps: list[StepRecord] = []
    for first, records in sorted(runs, key=lambda run: run[0]):
        if first != len(steps):
            raise TraceError(
                f"turn {turn_id}, choice {choice}: steps {len(steps)} to {first - 1} are missing"
            )
        steps += records
    if end is not None and int(end[b"n"]) != len(steps):
        raise TraceError(f"turn {turn_id}, choice {choice}: {len(steps)} of {int(end[b'n'])} steps are there")
    return ChoiceSteps(choice, tuple(steps), end[b"end"].decode() if end is not None else None)
