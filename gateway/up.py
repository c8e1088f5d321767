"""``gravity up``: the whole product on one machine, in the foreground."""

from __future__ import annotations

import asyncio
import contextlib
import sys

from gateway.stack.signals import InterruptedBySignal, until_signal
from gateway.stack.stack import OWN_NAME, StackPlan, running
from gateway.stack.valkey import without_password

NAME_WIDTH = 7


def run_up(plan: StackPlan) -> int:
    """Run until a signal (0) or until a process ends (1). Raises StackError where one cannot start."""
    try:
        return asyncio.run(until_signal(_up(plan)))
    except InterruptedBySignal as interruption:
        _say(f"{interruption}; all processes have ended")
        return 0


async def _up(plan: StackPlan) -> int:
    async with running(plan, _forward) as stack:
        _say(f"gateway  {stack.gateway_url}/v1")
        _say(f"worker   {stack.worker_url}")
        _say(f"redis    {without_password(stack.redis_url)}")
        _say("ready: Ctrl-C ends it")
        dead = await stack.wait_for_death()
        status = await dead.wait()
    print(f"gravity up: {dead.name} ended with status {status}; the others were ended too", file=sys.stderr)
    return 1


def _forward(name: str, line: str) -> None:
    with contextlib.suppress(BrokenPipeError):  # whoever read the lines has gone; serving goes on
        print(f"{name:<{NAME_WIDTH}} | {line}", flush=True)


def _say(line: str) -> None:
    _forward(OWN_NAME, line)
