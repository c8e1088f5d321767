"""A run, top to bottom: start, load, faults, settle, judge."""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import httpx
from redis.asyncio import Redis

from gateway.app import end_tasks
from gateway.chaos.client import MIX, ask
from gateway.chaos.endings import Ending, ends_by_kind, reasons_of
from gateway.chaos.faults import Faults, lost_steps
from gateway.chaos.memory import MemoryWatch
from gateway.chaos.publishing import Publisher
from gateway.chaos.rest import POLL_S, settled
from gateway.chaos.site import Site, running, site_of_chaos
from gateway.chaos.steps import StepLoss, step_loss
from gateway.errors import ConfigError

NUM_CLIENTS = 6
MAX_SHOWN = 20


@dataclass(frozen=True, slots=True)
class ChaosPlan:
    """``tell`` is called with each thing that is done."""

    duration_s: float
    seed: int
    tell: Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a run has seen. It is good where there are no problems."""

    turns: dict[str, dict[str, int]]
    """Kind, then end, then how many."""
    reasons: dict[str, int]
    """Of refusals, error events and what is wrong."""
    faults: list[str]
    num_published: int
    num_publishes_not_answered: int
    steps: StepLoss
    steps_counted_as_lost: float
    growth_mib: dict[str, float]
    problems: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        names = self.__slots__
        return {"is_good": not self.problems} | {name: getattr(self, name) for name in names}


async def run_once(plan: ChaosPlan) -> Verdict:
    """Raises StackError where a process cannot be started."""
    with tempfile.TemporaryDirectory(prefix="gravity-chaos-") as folder:
        plan.tell("starting Valkey, two workers and two gateways …")
        async with running(partial(site_of_chaos, Path(folder))) as site:
            return await _judged(site, plan)


async def _judged(site: Site, plan: ChaosPlan) -> Verdict:
    draw = random.Random(plan.seed)
    end_s = monotonic() + plan.duration_s
    endings: list[Ending] = []
    publisher, memory = Publisher.open(site.settings), MemoryWatch(site)
    faults = Faults(site, random.Random(plan.seed + 1), plan.tell)
    watches = [
        asyncio.create_task(publisher.run(), name="publisher"),
        asyncio.create_task(memory.run(), name="memory"),
    ]
    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(NUM_CLIENTS):
                clients = random.Random(draw.random())
                group.create_task(_ask_until(site, clients, end_s, endings))
            group.create_task(faults.run_until(end_s))
    finally:
        await end_tasks(watches)
    plan.tell("settling …")
    problems = await settled(site)
    problems += [
        f"the run's own {watch.get_name()} broke: {watch.exception()!r}"
        for watch in watches
        if not watch.cancelled()
    ]
    for place in site.places:
        place.look()
        problems += [f"{place.name} died by itself:\n{output}" for output in place.deaths]
    if not any(ending.end == "answered" for ending in endings):
        problems.append("no turn was answered")
    wrong = [ending for ending in endings if ending.end == "wrong"]
    problems += [f"{each.kind} at {each.gateway}: {each.detail} {each.turn_id}" for each in wrong[:MAX_SHOWN]]
    counted = faults.num_lost_before + sum([await lost_steps(worker) for worker in site.workers])
    async with Redis.from_url(site.redis_url, socket_timeout=10.0) as redis:
        steps = await step_loss(redis, endings, site)
    problems += steps.problems(counted) + memory.problems() + await asyncio.to_thread(_history, publisher)
    return Verdict(
        turns=ends_by_kind(endings, MIX),
        reasons=reasons_of(endings),
        faults=faults.log,
        num_published=len(publisher.acknowledged),
        num_publishes_not_answered=publisher.num_not_answered,
        steps=steps,
        steps_counted_as_lost=counted,
        growth_mib=dict(memory.growth_mib()),
        problems=problems,
    )


async def _ask_until(site: Site, draw: random.Random, end_s: float, endings: list[Ending]) -> None:
    """One client: a turn after the other, at a gateway by chance."""
    kinds, weights = tuple(MIX), tuple(MIX.values())
    while monotonic() < end_s:
        gateway = draw.choice(site.gateways)
        (kind,) = draw.choices(kinds, weights)
        async with httpx.AsyncClient(timeout=None) as client:
            endings.append(await ask(client, gateway, kind, draw))
        if endings[-1].end in ("refused", "cut off"):
            await asyncio.sleep(POLL_S)  # as clients do


def _history(publisher: Publisher) -> list[str]:
    try:
        return publisher.problems()
    except ConfigError as error:
        return [f"the history cannot be read: {error.message}"]
