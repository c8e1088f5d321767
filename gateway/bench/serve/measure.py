"""Starts the engines, lets each answer every block in turn, and takes them down."""

from __future__ import annotations

import asyncio
import os
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from gateway.bench.serve.arrivals import Arrivals
from gateway.bench.serve.driving import MODEL, Asked, drive
from gateway.bench.serve.engines import RIVALS, EngineServer, Setting, ours
from gateway.bench.serve.figures import Block
from gateway.bench.serve.mix import EQUAL, SYSTEM, Job, draw_jobs
from gateway.bench.usage import Usage
from gateway.errors import CommandError, StackError
from gateway.stack.child import Child, keep_quiet
from gateway.stack.leash import Leash

READY_S = 240.0
GRACE_S = 15.0
POLL_S = 0.2
WARM_UP_SEED = 1_000_000
Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class ServePlan:
    """What is asked of whom. Every block is drawn anew, and is the same for all engines."""

    setting: Setting
    shares: Mapping[str, float] = field(default_factory=lambda: dict(EQUAL))
    arrivals: Arrivals = Arrivals()
    num_requests: int = 16
    num_blocks: int = 5
    seed: int = 0
    rivals: tuple[str, ...] = tuple(RIVALS)


@dataclass(frozen=True, slots=True)
class Served:
    """Blocks by engine, ours first. ``left_out`` says why a rival is not there, ``load`` how busy it was."""

    blocks: Mapping[str, Sequence[Block]]
    left_out: tuple[str, ...]
    notes: Mapping[str, str]
    load: tuple[float, float]
    """The machine's load average over a minute, before the first block and after the last."""


@dataclass(frozen=True, slots=True)
class _Running:
    server: EngineServer
    usage: Usage


async def serve(plan: ServePlan, tell: Tell) -> Served:
    """Measure what ``plan`` says. Raises CommandError where ours cannot run or an engine breaks off."""
    prompts = Prompts(plan)
    async with AsyncExitStack() as stack:
        leash = stack.enter_context(Leash())
        running, left_out = [await _started(ours(plan.setting), leash, stack)], []
        for name in plan.rivals:
            tell(f"starting {name}")
            try:
                running.append(await _started(RIVALS[name](plan.setting), leash, stack))
            except (CommandError, StackError) as error:
                left_out.append(f"{name}: {error}")
        warm_up = prompts.block(WARM_UP_SEED)[:1]
        for each in running:
            await drive(each.server.url, warm_up, Arrivals(), (0,))
        before = os.getloadavg()[0]
        blocks = await _blocks(plan, prompts, running, tell)
    notes = {each.server.name: each.server.note for each in running if each.server.note}
    return Served(blocks, tuple(left_out), notes, (before, os.getloadavg()[0]))


class Prompts:
    """The blocks of a plan as token ids: each text is put through the model's own chat template once."""

    def __init__(self, plan: ServePlan) -> None:
        from transformers import AutoTokenizer

        self._plan = plan
        self._tokenizer: Any = AutoTokenizer.from_pretrained(
            str(plan.setting.model_folder), trust_remote_code=False
        )

    def block(self, number: int) -> list[Asked]:
        """Return the requests of block ``number``."""
        jobs = draw_jobs(self._plan.shares, self._plan.num_requests, (self._plan.seed, number))
        return [Asked(job.kind, self._ids(job), job.max_tokens) for job in jobs]

    def _ids(self, job: Job) -> tuple[int, ...]:
        messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": job.text}]
        text = self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        return tuple(self._tokenizer.encode(text, add_special_tokens=False))


async def _blocks(
    plan: ServePlan, prompts: Prompts, running: Sequence[_Running], tell: Tell
) -> dict[str, list[Block]]:
    """Every engine answers every block; each block begins with another engine."""
    blocks: dict[str, list[Block]] = defaultdict(list, {each.server.name: [] for each in running})
    for number in range(plan.num_blocks):
        asked, first = prompts.block(number), number % len(running)
        for each in (*running[first:], *running[:first]):
            tell(f"block {number + 1} of {plan.num_blocks}: {each.server.name}")
            before_s = each.usage.cpu_s()
            driven = await drive(each.server.url, asked, plan.arrivals, (plan.seed, number))
            blocks[each.server.name].append(Block(driven, each.usage.cpu_s() - before_s))
    return dict(blocks)


async def _started(server: EngineServer, leash: Leash, stack: AsyncExitStack) -> _Running:
    child = await Child.start(server.command, leash, keep_quiet)
    stack.push_async_callback(child.stop, GRACE_S)
    await _answers(server, child)
    return _Running(server, Usage(child.pid, server.name))


async def _answers(server: EngineServer, child: Child) -> None:
    """Return once it writes a token. Raises StackError where it does not in time."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + READY_S
    body = Asked("ready", (1, 2, 3), 1).body()
    reason = f"not within {READY_S:.0f} s"
    async with aiohttp.ClientSession(server.url) as session:
        while loop.time() < deadline and not child.has_ended:
            try:
                async with session.post("/v1/completions", data=body, headers=_JSON) as response:
                    if response.status == 200:
                        await response.read()
                        return
                    reason = (await response.text())[:500]
            except aiohttp.ClientConnectionError:
                pass  # not there yet
            await asyncio.sleep(POLL_S)
    if child.has_ended:
        reason = "it ended"
    raise StackError(f"{server.name} does not serve {MODEL} ({reason}):\n{child.last_output[-2000:]}")


_JSON = {"content-type": "application/json"}
