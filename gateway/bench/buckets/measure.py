"""Lets every arm answer every block in turn, and notes what each took."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import orjson

from gateway.bench.buckets.arms import ARMS, MAX_TOKENS, Arm, Drafts, task_of, write_tasks
from gateway.bench.buckets.site import Site, running
from gateway.bench.serve.arrivals import Arrivals
from gateway.bench.serve.driving import drive
from gateway.bench.serve.figures import Block
from gateway.bench.serve.mix import JSON, OPEN, SHORT, Job, draw_jobs

CHAT = "/v1/chat/completions"
WARM_UP, WARM_UP_PER_S = 1_000_000, 10.0
Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class BucketsPlan:
    """What is asked. Every block is drawn anew, and is the same for all arms."""

    model_folder: Path
    rate_per_s: float = 0.6
    shares: Mapping[str, float] = field(default_factory=lambda: dict.fromkeys((SHORT, JSON, OPEN), 1.0))
    num_requests: int = 12
    num_blocks: int = 5
    seed: int = 0
    drafts: Drafts = "entropy"
    max_draft: int = 8
    arms: Sequence[Arm] = ARMS


@dataclass(frozen=True, slots=True)
class Routed:
    """One request with the gateway that it goes to. It ends where the model ends it."""

    job: Job
    url: str
    model: str
    task: str
    seed: int

    @property
    def kind(self) -> str:
        return self.job.kind

    def body(self) -> bytes:
        return orjson.dumps(
            {
                "model": self.model,
                "messages": [{"role": "user", "content": self.job.text}],
                "task": self.task,
                "seed": self.seed,
                "stream": True,
                "stream_options": {"include_usage": True},
            }
        )

    def allows(self, num_tokens: int) -> bool:
        return 0 < num_tokens <= MAX_TOKENS[self.kind]


@dataclass(frozen=True, slots=True)
class Measured:
    """Blocks by arm. ``placed``: by gateway, where turns went; ``load``: its average before and after."""

    blocks: Mapping[str, Sequence[Block]]
    placed: Mapping[str, Mapping[str, Mapping[str, int]]]
    load: tuple[float, float]


async def measure(plan: BucketsPlan, tell: Tell) -> Measured:
    """Measure what ``plan`` says. Raises CommandError and StackError."""
    blocks: dict[str, list[Block]] = {arm.name: [] for arm in plan.arms}
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gravity-buckets-"))) / "configs"
        write_tasks(folder, plan.drafts, plan.max_draft)
        names = dict.fromkeys(name for arm in plan.arms for name in arm.gateways)
        tell(f"starting two workers and the gateways {', '.join(names)}")
        site = await stack.enter_async_context(running(plan.model_folder, folder, names))
        warm_up = replace(plan, num_requests=len(plan.shares), rate_per_s=WARM_UP_PER_S)
        for arm in plan.arms:
            await run_block(arm, site, warm_up, WARM_UP)  # loads what is loaded late
        before = os.getloadavg()[0]
        for number in range(plan.num_blocks):
            first = number % len(plan.arms)
            for arm in (*plan.arms[first:], *plan.arms[:first]):
                tell(f"block {number + 1} of {plan.num_blocks}: {arm.name}")
                blocks[arm.name].append(await run_block(arm, site, plan, number))
        placed = {name: await site.placed(name) for name in site.urls}
    return Measured(blocks, placed, (before, os.getloadavg()[0]))


async def run_block(arm: Arm, site: Site, plan: BucketsPlan, number: int) -> Block:
    """Let ``arm`` answer block ``number``."""
    asked = requests_of(arm, site, plan, number)
    before_s = site.cpu_s(arm.gateways)
    driven = await drive("", asked, Arrivals(rate_per_s=plan.rate_per_s), (plan.seed, number))
    return Block(driven, site.cpu_s(arm.gateways) - before_s)


def requests_of(arm: Arm, site: Site, plan: BucketsPlan, number: int) -> list[Routed]:
    """Return the requests of block ``number`` as ``arm`` sends them."""
    jobs = draw_jobs(plan.shares, plan.num_requests, (plan.seed, number))
    gateways = arm.gateways
    coins = np.random.default_rng((plan.seed, number, 1)).integers(0, len(gateways), len(jobs))
    return [
        Routed(job, site.urls[gateways[coin]] + CHAT, site.model, task_of(job.kind, arm), seed)
        for seed, (job, coin) in enumerate(zip(jobs, coins, strict=True))
    ]
