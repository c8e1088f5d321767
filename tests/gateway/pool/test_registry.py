"""Which worker gets the next request, against real servers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from time import monotonic
from typing import Any

import pytest

from gateway.errors import ModelNotFound, NoWorkers
from gateway.pool.registry import Pool
from gateway.pool.roster import Registration
from gateway.settings import GatewaySettings
from tests.servers.upstream import MODEL, StartUpstream, Upstream

OpenPool = Callable[..., Pool]


@pytest.fixture
async def open_pool() -> AsyncIterator[OpenPool]:
    """Open a pool over upstreams, not yet probed."""
    opened: list[Pool] = []

    def open_(*upstreams: Upstream, **settings: float) -> Pool:
        urls = tuple(upstream.url for upstream in upstreams)
        fields: dict[str, Any] = {"workers": urls, "probe_timeout_s": 0.5, **settings}
        opened.append(Pool.open(GatewaySettings(**fields), monotonic))
        return opened[-1]

    yield open_
    for pool in opened:
        await pool.close()


async def probe_all(pool: Pool) -> None:
    for worker in pool.workers:
        await pool.probe(worker)


async def test_a_probe_learns_level_and_models(start_upstream: StartUpstream, open_pool: OpenPool) -> None:
    native, opaque = start_upstream(), start_upstream(is_native=False)
    opaque.models = ["other-model"]
    pool = open_pool(native, opaque)
    await probe_all(pool)
    assert [worker.level for worker in pool.workers] == ["native", "opaque"]
    assert pool.models == {MODEL: 2048, "other-model": 2048}
    assert pool.pick("other-model", 0).name == opaque.url


async def test_the_least_busy_gets_it_and_of_equals_the_one_that_served_least(
    start_upstream: StartUpstream, open_pool: OpenPool
) -> None:
    pool = open_pool(start_upstream(), start_upstream(), start_upstream())
    await probe_all(pool)
    first = pool.pick(MODEL, 0)
    lease = first.take(0)
    second = pool.pick(MODEL, 0)
    second.take(0).end("success")
    third = pool.pick(MODEL, 0)
    assert len({first, second, third}) == 3
    lease.end("success")
    assert pool.pick(MODEL, 0) is third


async def test_like_goes_to_like_as_long_as_load_allows(
    start_upstream: StartUpstream, open_pool: OpenPool
) -> None:
    pool = open_pool(start_upstream(), start_upstream())
    await probe_all(pool)
    sure, unsure = pool.workers
    for _ in range(2):
        sure.take(0)
        unsure.take(3)
    assert pool.pick(MODEL, 0) is sure
    assert pool.pick(MODEL, 3) is unsure
    # Two more open requests outweigh three buckets of distance at half a request each.
    sure.take(0)
    sure.take(0)
    assert pool.pick(MODEL, 0) is unsure


async def test_probes_never_reset_the_load(start_upstream: StartUpstream, open_pool: OpenPool) -> None:
    upstream = start_upstream()
    pool = open_pool(upstream)
    await probe_all(pool)
    (worker,) = pool.workers
    leases = [worker.take(1) for _ in range(3)]
    upstream.is_ready = False
    await probe_all(pool)
    assert not worker.is_ready
    upstream.is_ready = True
    await probe_all(pool)
    assert worker.is_ready
    assert worker.num_in_flight == 3
    for lease in leases:
        lease.end("success")
    assert worker.num_in_flight == 0


async def test_a_worker_that_goes_is_out_and_one_that_comes_back_is_in(
    start_upstream: StartUpstream, open_pool: OpenPool
) -> None:
    upstream = start_upstream()
    pool = open_pool(upstream)
    await probe_all(pool)
    upstream.stop()
    await probe_all(pool)
    with pytest.raises(NoWorkers):
        pool.pick(MODEL, 0)
    assert pool.status()[0].reason
    upstream.start()
    await probe_all(pool)
    assert pool.pick(MODEL, 0).name == upstream.url


async def test_a_model_that_nobody_has_is_unknown_once_all_workers_are_known(
    start_upstream: StartUpstream, open_pool: OpenPool
) -> None:
    pool = open_pool(start_upstream(), start_upstream())
    await pool.probe(pool.workers[0])
    with pytest.raises(NoWorkers):
        pool.pick("gpt-99", 0)
    await probe_all(pool)
    with pytest.raises(ModelNotFound):
        pool.pick("gpt-99", 0)


async def test_a_model_of_a_worker_that_is_away_is_known(
    start_upstream: StartUpstream, open_pool: OpenPool
) -> None:
    upstream = start_upstream()
    pool = open_pool(upstream)
    await probe_all(pool)
    upstream.stop()
    await probe_all(pool)
    assert MODEL in pool.models
    with pytest.raises(NoWorkers):
        pool.pick(MODEL, 0)


async def test_tried_workers_are_left_out(start_upstream: StartUpstream, open_pool: OpenPool) -> None:
    pool = open_pool(start_upstream(), start_upstream())
    await probe_all(pool)
    first = pool.pick(MODEL, 0)
    assert pool.pick(MODEL, 0, [first]) is not first
    with pytest.raises(NoWorkers):
        pool.pick(MODEL, 0, pool.workers)


async def test_tokens_are_counted_by_the_worker_once_for_each_text(
    start_upstream: StartUpstream, open_pool: OpenPool
) -> None:
    upstream = start_upstream()
    pool = open_pool(upstream)
    await probe_all(pool)
    count = pool.token_counter(MODEL)
    assert await count(["one two three", "one", "one two three"]) == ([3, 1, 3], False)
    assert await count(["one", "four five"]) == ([1, 2], False)
    assert upstream.paths.count("/tokenize") == 2
    assert await count(["one", "four five"]) == ([1, 2], False)
    assert await count([]) == ([], False)
    assert upstream.paths.count("/tokenize") == 2


async def test_tokens_are_estimated_where_no_worker_can_count(
    start_upstream: StartUpstream, open_pool: OpenPool
) -> None:
    opaque = start_upstream(is_native=False)
    pool = open_pool(opaque)
    await probe_all(pool)
    assert await pool.token_counter(MODEL)(["a" * 40, "b"]) == ([10, 1], True)
    gone = start_upstream()
    other = open_pool(gone)
    await probe_all(other)
    gone.stop()
    assert await other.token_counter(MODEL)(["a" * 40]) == ([10], True)


async def test_a_workers_environment_is_one_mapping_until_it_changes(
    start_upstream: StartUpstream, open_pool: OpenPool
) -> None:
    upstream = start_upstream()
    upstream.environment = {"dtype": "bf16"}
    pool = open_pool(upstream)
    await probe_all(pool)
    [worker] = pool.workers
    first = worker.environment
    await probe_all(pool)
    assert worker.environment is first
    assert first["worker"] == {"level": "native", "dtype": "bf16"}
    upstream.environment = {"dtype": "fp32"}
    await probe_all(pool)
    assert worker.environment["worker"]["dtype"] == "fp32"
    assert first["worker"]["dtype"] == "bf16"  # what a turn was given stays as it was


def registered(upstream: Upstream) -> Registration:
    return Registration(upstream.url, "somebody", 0.0, drains=False, lifetime_left_s=None)


async def test_a_worker_that_comes_back_before_its_turns_have_ended_keeps_its_counters(
    start_upstream: StartUpstream, open_pool: OpenPool
) -> None:
    upstream = start_upstream()
    pool = open_pool()
    pool.follow([registered(upstream)])
    await probe_all(pool)
    worker = pool.pick(MODEL, 0)
    lease = worker.take(0)
    pool.follow([])
    with pytest.raises(NoWorkers):
        pool.pick(MODEL, 0)
    pool.follow([registered(upstream)])
    await probe_all(pool)
    assert pool.workers == (worker,)
    assert worker.num_in_flight == 1
    lease.end("success")
    assert worker.num_in_flight == 0


async def test_the_workers_of_the_settings_stay_whatever_is_registered(
    start_upstream: StartUpstream, open_pool: OpenPool
) -> None:
    settled, other = start_upstream(), start_upstream()
    pool = open_pool(settled)
    pool.follow([registered(settled), registered(other)])
    assert [worker.name for worker in pool.workers] == [settled.url, other.url]
    pool.follow([])
    assert [worker.name for worker in pool.workers] == [settled.url]
