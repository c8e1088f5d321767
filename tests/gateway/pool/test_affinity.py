"""Prompts alike go where they were, by a simulation over the real pool; the workers are not asked."""

from __future__ import annotations

import hashlib
import math
from collections import OrderedDict, defaultdict
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from random import Random
from time import monotonic

import pytest

from gateway.pool.affinity import LOAD_FACTOR, key_of, preferred, weight
from gateway.pool.capabilities import Capabilities
from gateway.pool.registry import Pool
from gateway.pool.worker import Lease, Worker
from gateway.settings import GatewaySettings

OpenPool = Callable[[int], Pool]
NUM_WORKERS, NUM_PROMPTS, CACHE_SIZE = 4, 24, 8


@pytest.fixture
async def open_pool() -> AsyncIterator[OpenPool]:
    """Open a pool of so many workers, all ready, with the model ``m``."""
    opened: list[Pool] = []

    def open_(num_workers: int) -> Pool:
        urls = tuple(f"http://10.0.0.{number}:8081" for number in range(num_workers))
        opened.append(Pool.open(GatewaySettings(workers=urls), monotonic))
        for worker in opened[-1].workers:
            worker.answered(Capabilities("native", {"m": None}))
        return opened[-1]

    yield open_
    for pool in opened:
        await pool.close()


@dataclass
class Run:
    """Turns at a pool whose workers each keep the last prompts that they had."""

    pool: Pool
    random: Random = field(default_factory=lambda: Random(11))
    num_hits: int = 0
    num_turns: int = 0
    num_waited_beside_idle: int = 0
    worst_load: float = 0.0
    """The most open turns at one worker, by what a bounded load allows."""

    def serve(self, num_turns: int, mean_open: int, *, by_prompt: bool) -> None:
        caches: dict[Worker, OrderedDict[int, None]] = defaultdict(OrderedDict)
        open_: list[Lease] = []
        for _ in range(num_turns):
            while len(open_) >= mean_open:
                open_.pop(self.random.randrange(len(open_))).end("success")
            prompt = self.random.randrange(NUM_PROMPTS)
            worker = self.pool.pick("m", 1, (), key_of("m", str(prompt)) if by_prompt else None)
            has_idle = any(each.num_in_flight == 0 for each in self.pool.workers)
            self.num_waited_beside_idle += has_idle and worker.num_in_flight > 0
            self.num_hits += prompt in caches[worker]
            self.num_turns += 1
            caches[worker][prompt] = None
            caches[worker].move_to_end(prompt)
            if len(caches[worker]) > CACHE_SIZE:
                caches[worker].popitem(last=False)
            open_.append(worker.take(1))
            allowed = math.ceil(LOAD_FACTOR * len(open_) / len(self.pool.workers))
            self.worst_load = max(self.worst_load, worker.num_in_flight / allowed)
        for lease in open_:
            lease.end("success")


@pytest.mark.parametrize("mean_open", [1, 8, 32])
async def test_prompts_alike_meet_again_and_nobody_waits_beside_an_idle_worker(
    open_pool: OpenPool, mean_open: int
) -> None:
    blind, warm = Run(open_pool(NUM_WORKERS)), Run(open_pool(NUM_WORKERS))
    blind.serve(3_000, mean_open, by_prompt=False)
    warm.serve(3_000, mean_open, by_prompt=True)
    # Each worker keeps a third of the prompts, which is how often it has one that comes from anywhere.
    assert blind.num_hits / blind.num_turns == pytest.approx(CACHE_SIZE / NUM_PROMPTS, abs=0.05)
    assert warm.num_hits / warm.num_turns > 0.65
    assert warm.num_waited_beside_idle == 0
    assert warm.worst_load <= 1.0


async def test_a_worker_that_goes_moves_no_other_workers_prompts(open_pool: OpenPool) -> None:
    workers = open_pool(5).workers
    before = {key: preferred(workers, key) for key in (key_of("m", str(n)) for n in range(500))}
    gone, left = workers[0], workers[1:]
    for key, worker in before.items():
        if worker is not gone:
            assert preferred(left, key) is worker
    shares = [list(before.values()).count(worker) / 500 for worker in workers]
    assert max(shares) < 0.3
    assert min(shares) > 0.12


def test_the_order_is_the_same_in_every_process() -> None:
    assert weight(0, 1) == weight(1, 0) == 0x5692161D100B05E5  # splitmix64's finaliser of 1
    assert key_of("m", "a") == int.from_bytes(hashlib.blake2b(b"m\0a", digest_size=8).digest(), "big")
