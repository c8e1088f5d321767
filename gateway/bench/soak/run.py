"""A soak, top to bottom: start, warm up, look, load, let it come to rest, look again, judge."""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import monotonic

import httpx

from gateway.app import end_tasks
from gateway.bench.soak.client import ask_until
from gateway.bench.soak.hostile import MODEL
from gateway.bench.soak.levels import Levels, growth_problems, levels_of
from gateway.bench.soak.requests import COMPLETIONS, MIX
from gateway.bench.soak.site import ErrorLines, site_of_soak
from gateway.chaos.endings import Ending, ends_by_kind, reasons_of
from gateway.chaos.memory import MemoryWatch
from gateway.chaos.place import Place
from gateway.chaos.rest import settled
from gateway.chaos.site import Site, metrics_of, running, url_of
from gateway.errors import StackError

WARM_UP_S = 20.0
WARM_UP_SEED = 1_000_000
WARM_SHARE = 1.0 / 3.0
"""Of the load: whatever fills up to its bound has done so by then."""
MAX_SHOWN = 20
TOLD_EVERY_S = 60.0
PROMPTS = ("The harbour is", "Once upon a time", "Water boils when")
"""Shorter than a block of the prefix cache, so that each answer is computed anew."""
GREEDY_TOKENS = 48
COUNTERS = ("engine_tokens", "preemptions", "prefix_tokens_found", "draft_tokens_accepted")
Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class SoakPlan:
    """``num_clients`` ask without a pause for ``duration_s``, what and in which order ``seed`` says."""

    duration_s: float
    seed: int = 1
    num_clients: int = 10


@dataclass(frozen=True, slots=True)
class Soaked:
    """What a run has seen. It is good where there are no problems."""

    turns: Mapping[str, Mapping[str, int]]
    """Kind, then end, then how many."""
    reasons: Mapping[str, int]
    longest_s: Mapping[str, float]
    """The longest turn of each kind that was answered."""
    growth_mib: Mapping[str, float]
    """After a third of the run."""
    memory_mib: Mapping[str, list[float]]
    """The lowest of every 20 s."""
    levels: Mapping[str, tuple[Levels, Levels]]
    """By process, at rest, after the warm-up and at the end."""
    counters: Mapping[str, float]
    """Of the worker, over all of the run."""
    problems: list[str] = field(default_factory=list)


async def soak(plan: SoakPlan, tell: Tell) -> Soaked:
    """Raises StackError where a process cannot be started, or is not at rest before the load."""
    errors = ErrorLines()
    with tempfile.TemporaryDirectory(prefix="gravity-soak-") as folder:
        tell("starting Valkey, a worker and a gateway")
        async with running(partial(site_of_soak, Path(folder), errors)) as site:
            soaked = await _judged(site, plan, tell)
    soaked.problems.extend(errors.lines)
    return soaked


async def _judged(site: Site, plan: SoakPlan, tell: Tell) -> Soaked:
    endings: list[Ending] = []
    warm_up = SoakPlan(min(WARM_UP_S, plan.duration_s), plan.seed + WARM_UP_SEED, plan.num_clients)
    await _load(site, warm_up, endings)
    if problems := await settled(site):
        raise StackError(f"after the warm-up: {problems[0]}")
    before, texts = levels_of(site), await _greedy(site)
    memory = MemoryWatch(site, WARM_SHARE * plan.duration_s)
    watches = [
        asyncio.create_task(memory.run(), name="memory"),
        asyncio.create_task(_tell_how_far(endings, tell), name="progress"),
    ]
    try:
        await _load(site, plan, endings)
    finally:
        await end_tasks(watches)
    problems = await settled(site)
    for place in site.places:
        place.look()
        problems += [f"{place.name} died by itself:\n{output}" for output in place.deaths]
    problems += _watch_problems(watches) + _turn_problems(endings) + memory.problems()
    after, counters = before, {}
    if not any(place.deaths for place in site.places):
        after = levels_of(site)
        problems += growth_problems(before, after) + await _server_faults(site)
        if (now := await _greedy(site)) != texts:
            problems.append(f"the worker wrote {texts} at the beginning and {now} at the end")
        counters = await _counters(site.workers[0])
    return Soaked(
        turns=ends_by_kind(endings, MIX),
        reasons=reasons_of(endings),
        longest_s=_longest_s(endings),
        growth_mib=dict(memory.growth_mib()),
        memory_mib=dict(memory.course_mib()),
        levels={name: (before[name], after[name]) for name in before},
        counters=counters,
        problems=problems,
    )


def _longest_s(endings: list[Ending]) -> dict[str, float]:
    longest = dict.fromkeys(MIX, 0.0)
    for ending in endings:
        if ending.end == "answered":
            longest[ending.kind] = max(longest[ending.kind], ending.ended_s - ending.began_s)
    return longest


async def _load(site: Site, plan: SoakPlan, endings: list[Ending]) -> None:
    draw, end_s = random.Random(plan.seed), monotonic() + plan.duration_s
    async with asyncio.TaskGroup() as clients:
        for _ in range(plan.num_clients):
            clients.create_task(ask_until(site, random.Random(draw.random()), end_s, endings))


async def _tell_how_far(endings: list[Ending], tell: Tell) -> None:
    """Tell every minute how many turns have ended, until cancelled."""
    began_s = monotonic()
    while True:
        await asyncio.sleep(TOLD_EVERY_S)
        num_wrong = sum(ending.end == "wrong" for ending in endings)
        tell(f"{(monotonic() - began_s) / 60.0:.0f} min: {len(endings)} turns, {num_wrong} wrong")


async def _greedy(site: Site) -> tuple[str, ...]:
    """Return what the worker writes after the prompts, one at a time. Raises StackError."""
    texts = []
    async with httpx.AsyncClient(base_url=url_of(site.gateways[0]), timeout=120.0) as client:
        for prompt in PROMPTS:
            body = {"model": MODEL, "prompt": prompt, "max_tokens": GREEDY_TOKENS, "temperature": 0.0}
            answer = await client.post(COMPLETIONS, json=body)
            if answer.status_code != httpx.codes.OK:
                raise StackError(f"a plain prompt is refused: {answer.status_code} {answer.text}")
            texts.append(str(answer.json()["choices"][0]["text"]))
    return tuple(texts)


async def _server_faults(site: Site) -> list[str]:
    """Return what gateway and worker themselves counted as 5xx, of turns whose clients had left too."""
    found: list[str] = []
    async with httpx.AsyncClient(timeout=10.0) as client:
        for place in (*site.gateways, *site.workers):
            lines = (await client.get(url_of(place) + "/metrics")).text.splitlines()
            found += [f"{place.name} counted {line}" for line in lines if _counts_a_fault(line)]
    return found


def _counts_a_fault(line: str) -> bool:
    is_of_faults = "requests_total{" in line and 'status_class="5xx"' in line
    return is_of_faults and float(line.rpartition(" ")[2]) > 0.0


async def _counters(worker: Place) -> dict[str, float]:
    async with httpx.AsyncClient(timeout=10.0) as client:
        figures = await metrics_of(client, worker)
    return {name: figures[f"ng_worker_{name}_total"] for name in COUNTERS}


def _turn_problems(endings: list[Ending]) -> list[str]:
    wrong = [ending for ending in endings if ending.end == "wrong"]
    found = [f"{each.kind} at {each.gateway}: {each.detail} {each.turn_id}" for each in wrong[:MAX_SHOWN]]
    if len(wrong) > MAX_SHOWN:
        found.append(f"and {len(wrong) - MAX_SHOWN} other turns")
    if not any(ending.end == "answered" for ending in endings):
        found.append("no turn was answered")
    return found


def _watch_problems(watches: list[asyncio.Task[None]]) -> list[str]:
    return [
        f"the run's own {watch.get_name()} broke: {watch.exception()!r}"
        for watch in watches
        if not watch.cancelled()
    ]
