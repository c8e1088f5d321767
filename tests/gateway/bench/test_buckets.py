"""``gravity bench buckets``: its requests and figures from known answers; a block through real servers."""

from __future__ import annotations

import json
from pathlib import Path

import orjson
import pytest
from rich.console import Console

from gateway.bench.buckets.arms import (
    ARMS,
    BUCKETS,
    BY_BUCKETS,
    BY_CHANCE,
    BY_LOAD,
    MAX_TOKENS,
    SURE,
    UNSURE,
    WITHOUT_DRAFTS,
    arms_named,
    drafts_named,
    kinds_of,
    write_tasks,
)
from gateway.bench.buckets.figures import compared
from gateway.bench.buckets.measure import BucketsPlan, Measured, requests_of, run_block
from gateway.bench.buckets.report import print_report, report_of
from gateway.bench.buckets.site import Site, gateway_command, worker_command
from gateway.bench.serve.driving import Answered, Driven
from gateway.bench.serve.figures import Block
from gateway.bench.serve.mix import JSON, OPEN, SHORT
from gateway.bench.usage import Usage
from gateway.errors import CommandError
from gateway.flow.bucket import bucket_of
from gateway.store.watch import ConfigStore
from tests.conftest import RunningProcess
from tests.servers.gateway import StartGateway

URLS = {name: f"http://{name}" for name in ("buckets", "load", SURE, UNSURE)}
SITE = Site(URLS, {}, (), "m")
PLAN = BucketsPlan(Path("model"), num_requests=30)


def block(cpu_s: float, *total_s: float) -> Block:
    return Block(Driven(tuple(Answered(SHORT, 10, 0.1, each) for each in total_s), elapsed_s=5.0), cpu_s)


def test_every_kind_has_a_task_with_drafts_and_one_without_in_a_bucket_of_one_worker(tmp_path: Path) -> None:
    write_tasks(tmp_path / "configs", "fixed", 5)
    tasks = ConfigStore.open(tmp_path / "configs").snapshot.tasks
    workers = {}
    for kind in MAX_TOKENS:
        plain, drafted = tasks[kind], tasks[f"{kind}_drafted"]
        assert (plain.speculation.mode, drafted.speculation.mode) == ("off", "fixed")
        assert drafted.speculation.max_draft == 5
        assert plain.sampling == drafted.sampling
        assert plain.calibration == drafted.calibration
        assert plain.calibration is not None
        bucket = bucket_of(plain.calibration.s_mean, plain.buckets.edges)
        [workers[kind]] = [name for name, buckets in BUCKETS.items() if bucket in buckets]
    assert workers == {SHORT: SURE, JSON: SURE, OPEN: UNSURE}


def test_all_arms_are_asked_the_same_and_chance_draws_the_worker() -> None:
    asked = {arm.name: requests_of(arm, SITE, PLAN, 3) for arm in ARMS}
    assert len({tuple((each.job.text, each.seed) for each in requests) for requests in asked.values()}) == 1
    at = {name: {each.url for each in requests} for name, requests in asked.items()}
    assert at["buckets"] == {"http://buckets/v1/chat/completions"}
    assert at["load"] == at["no drafts"] == {"http://load/v1/chat/completions"}
    drawn = [each.url for each in asked[BY_CHANCE.name]]
    assert set(drawn) == {f"http://{name}/v1/chat/completions" for name in (SURE, UNSURE)}
    assert drawn == [each.url for each in requests_of(BY_CHANCE, SITE, PLAN, 3)]
    assert drawn != [each.url for each in requests_of(BY_CHANCE, SITE, PLAN, 4)]
    tasks = [{each.task for each in asked[arm.name]} for arm in (BY_LOAD, WITHOUT_DRAFTS)]
    assert tasks == [{f"{kind}_drafted" for kind in MAX_TOKENS}, set(MAX_TOKENS)]


def test_a_request_is_a_turn_of_its_task_and_may_end_early() -> None:
    [request, *_] = requests_of(BY_LOAD, SITE, PLAN, 0)
    body = json.loads(request.body())
    assert (body["model"], body["task"], body["seed"], body["stream"]) == ("m", request.task, 0, True)
    assert [request.allows(number) for number in (0, 1, MAX_TOKENS[request.kind])] == [False, True, True]
    assert not request.allows(MAX_TOKENS[request.kind] + 1)


def test_ratios_are_of_rates_and_of_a_blocks_own_quantiles() -> None:
    ours, theirs = [block(1.0, 1.0, 2.0, 9.0)], [block(2.0, 2.0, 4.0, 6.0)]
    ratios = compared(ours, theirs)
    assert ratios.tokens_per_cpu_s.mean == pytest.approx(2.0)
    assert ratios.tokens_per_s.mean == pytest.approx(1.0)
    assert ratios.p50_s.mean == pytest.approx(0.5)
    assert ratios.p99_s.mean == pytest.approx((2.0 + 0.98 * 7.0) / (4.0 + 0.98 * 2.0))


def test_what_cannot_be_measured_is_refused() -> None:
    with pytest.raises(CommandError, match="no arm 'bogus'; there are buckets, load, random, no drafts"):
        arms_named("buckets,bogus")
    with pytest.raises(CommandError, match="entropy or fixed"):
        drafts_named("off")
    with pytest.raises(CommandError, match="no task for 'rag'"):
        kinds_of({"rag": 1.0, SHORT: 1.0})


def test_workers_and_gateways_are_started_with_what_is_compared(tmp_path: Path) -> None:
    drafts = [worker_command(name, tmp_path, {}).environment["NG_WORKER_MAX_DRAFT"] for name in BUCKETS]
    assert drafts == ["16", "0"]
    ports = {SURE: 1, UNSURE: 2}
    started = {name: gateway_command(name, ports, tmp_path, {}).environment for name in URLS}
    both = "http://127.0.0.1:1,http://127.0.0.1:2"
    assert [started[name]["NG_WORKERS"] for name in ("buckets", "load")] == [both, both]
    assert [started[name]["NG_WORKERS"] for name in (SURE, UNSURE)] == both.split(",")
    named = json.loads(started["buckets"]["NG_WORKER_BUCKETS"])
    assert named == {"http://127.0.0.1:1": [0, 1, 2], "http://127.0.0.1:2": [3]}
    assert not any("NG_WORKER_BUCKETS" in started[name] for name in ("load", SURE, UNSURE))


async def test_a_block_goes_through_a_real_gateway_to_a_real_worker(
    tmp_path: Path, start_gateway: StartGateway, worker_server: RunningProcess
) -> None:
    write_tasks(tmp_path / "configs", "entropy", 8)
    named = {worker_server.url: BUCKETS[SURE]}
    gateway = start_gateway(worker_server.url, config_dir=tmp_path / "configs", worker_buckets=named)
    [model] = gateway.deps.pool.models
    usage = Usage(worker_server.process.pid, "worker")
    site = Site({"buckets": gateway.url}, {"buckets": usage}, [usage], model)
    plan = BucketsPlan(tmp_path, rate_per_s=50.0, shares={SHORT: 1.0}, num_requests=2)
    done = await run_block(BY_BUCKETS, site, plan, 0)
    assert [answer.kind for answer in done.driven.answers] == [SHORT, SHORT]
    assert 0 < done.num_tokens <= 2 * MAX_TOKENS[SHORT]
    assert done.cpu_s > 0.0
    placed = await site.placed("buckets")
    assert [sum(pools.values()) for pools in placed.values()] == [2]
    report = report_of(Measured({"buckets": [done]}, {"buckets": placed}, (0.0, 0.0)), plan)
    assert orjson.loads(orjson.dumps(report))["placed"]["buckets"] == placed
    print_report(report, Console(quiet=True))
