"""Which workers a turn of a bucket may go to: the choice alone, then as the pool makes it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from time import monotonic
from typing import Any, TypeAlias

import pytest

from gateway.errors import NoWorkers, QueueFull
from gateway.pool.breaker import Breaker
from gateway.pool.capabilities import Capabilities
from gateway.pool.client import WorkerClient
from gateway.pool.registry import Pool
from gateway.pool.reply import Timeouts
from gateway.pool.roster import Registration
from gateway.pool.suiting import SPILL_FACTOR, pool_of, suited
from gateway.pool.worker import Worker
from gateway.settings import GatewaySettings

Buckets: TypeAlias = Sequence[Sequence[int]]
OpenPool: TypeAlias = Callable[..., Pool]


@pytest.fixture
async def open_pool() -> AsyncIterator[OpenPool]:
    """Open a pool of workers ``http://w0`` and so on for these buckets, all ready, with the model ``m``."""
    opened: list[Pool] = []

    def open_(*buckets: Sequence[int], **settings: int) -> Pool:
        urls = [f"http://w{number}" for number in range(len(buckets))]
        named = dict(zip(urls, buckets, strict=True))
        fields: dict[str, Any] = {"workers": tuple(urls), "worker_buckets": named, **settings}
        opened.append(Pool.open(GatewaySettings(**fields), monotonic))
        for worker in opened[-1].workers:
            worker.answered(Capabilities("native", {"m": None}))
        return opened[-1]

    yield open_
    for pool in opened:
        await pool.close()


@pytest.fixture
async def make_workers() -> AsyncIterator[Callable[[Buckets, Sequence[int]], list[Worker]]]:
    """Make a worker for each tuple of buckets, with so many open turns."""
    made: list[Worker] = []

    def make(buckets: Buckets, num_open: Sequence[int]) -> list[Worker]:
        workers = []
        for number, (named, count) in enumerate(zip(buckets, num_open, strict=True)):
            client = WorkerClient(f"http://w{number}", Timeouts(1.0, 1.0, 1.0, 1.0), None)
            workers.append(Worker(client, Breaker(3, 5.0, monotonic), buckets=named))
            for _ in range(count):
                workers[-1].take(0)
        made.extend(workers)
        return workers

    yield make
    for worker in made:
        await worker.client.close()


@pytest.mark.parametrize(
    ("buckets", "num_open", "chosen"),
    [
        ([[], []], [0, 3], [0, 1]),  # nobody is for anything: load alone decides
        ([[1], [3]], [0, 0], [0]),
        ([[0, 1], [1, 2], [3]], [0, 0, 0], [0, 1]),
        ([[], [3]], [0, 0], [0]),  # a worker for all is for this bucket too
        ([[0], [3]], [0, 0], [0, 1]),  # none is for bucket 1
        ([[1], [3]], [1, 0], [0]),
        ([[1], [3]], [2, 0], [0, 1]),  # twice what the other would have with this turn
        ([[1], [3]], [3, 1], [0]),
        ([[1], [3]], [4, 1], [0, 1]),
        ([[1], [1], [3]], [9, 1, 0], [0, 1]),  # the idlest counts
    ],
)
async def test_workers_for_the_bucket_come_first_as_far_as_their_load_allows(
    make_workers: Callable[[Buckets, Sequence[int]], list[Worker]],
    buckets: Buckets,
    num_open: Sequence[int],
    chosen: Sequence[int],
) -> None:
    workers = make_workers(buckets, num_open)
    assert SPILL_FACTOR == 2
    assert list(suited(workers, 1)) == [workers[number] for number in chosen]


async def test_a_worker_is_for_its_buckets_for_all_or_for_others(open_pool: OpenPool) -> None:
    pool = open_pool([0, 1], [])
    assert [pool_of(worker, 1) for worker in pool.workers] == ["own", "shared"]
    assert [pool_of(worker, 2) for worker in pool.workers] == ["other", "shared"]
    assert [status.buckets for status in pool.status()] == [(0, 1), ()]


async def test_where_its_workers_are_full_broken_or_away_the_others_get_the_turn(open_pool: OpenPool) -> None:
    pool = open_pool([0], [3], worker_concurrency=1, breaker_failures=1)
    sure, unsure = pool.workers
    lease = sure.take(0)
    assert pool.pick("m", 0) is unsure  # full
    other = unsure.take(0)
    with pytest.raises(QueueFull):
        pool.pick("m", 0)
    other.end("success")
    lease.end("failure")
    assert pool.pick("m", 0) is unsure  # broken
    with pytest.raises(NoWorkers):
        pool.pick("m", 0, [unsure])
    sure.breaker.end("success", is_trial=True)
    assert pool.pick("m", 0) is sure
    sure.failed_probe(NoWorkers(retry_after_s=1.0))
    assert pool.pick("m", 0) is unsure  # away


async def test_prompts_alike_meet_among_the_workers_for_their_bucket(open_pool: OpenPool) -> None:
    pool = open_pool([0], [0], [3], [3])
    chosen = {pool.pick("m", 0, (), key).name for key in range(0, 2**63, 2**56)}
    assert chosen == {"http://w0", "http://w1"}


async def test_what_is_registered_stands_in_place_of_the_settings_as_long_as_it_is_registered(
    open_pool: OpenPool,
) -> None:
    pool = open_pool([0], [3])
    entry = Registration("http://w0", "a", 0.0, drains=False, lifetime_left_s=None, buckets=(2, 3))
    pool.follow([entry])
    assert pool.workers[0].buckets == {2, 3}
    pool.follow([Registration("http://w0", "a", 0.0, drains=True, lifetime_left_s=None)])
    assert (pool.workers[0].buckets, pool.workers[0].is_draining) == (frozenset({0}), True)
    pool.follow([])
    assert (pool.workers[0].buckets, pool.workers[0].is_draining) == (frozenset({0}), False)
