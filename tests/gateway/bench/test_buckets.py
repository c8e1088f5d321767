"""``gravity bench buckets``: its requests and figures from known answers; one arm of it, in short."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from gateway.bench.buckets.arms import (
    ARMS,
    BUCKETS,
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
from gateway.bench.buckets.measure import BucketsPlan, requests_of
from gateway.bench.serve.driving import Answered, Driven
from gateway.bench.serve.figures import Block
from gateway.bench.serve.mix import JSON, OPEN, SHORT
from gateway.errors import CommandError
from gateway.flow.bucket import bucket_of
from gateway.store.watch import ConfigStore

URLS = {name: f"http://{name}" for name in ("buckets", "load", SURE, UNSURE)}
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
    asked = {arm.name: requests_of(arm, URLS, PLAN, 3) for arm in ARMS}
    assert len({tuple((each.text, each.seed) for each in requests) for requests in asked.values()}) == 1
    at = {name: {each.url for each in requests} for name, requests in asked.items()}
    assert at["buckets"] == {"http://buckets/v1/chat/completions"}
    assert at["load"] == at["no drafts"] == {"http://load/v1/chat/completions"}
    drawn = [each.url for each in asked[BY_CHANCE.name]]
    assert set(drawn) == {f"http://{name}/v1/chat/completions" for name in (SURE, UNSURE)}
    assert drawn == [each.url for each in requests_of(BY_CHANCE, URLS, PLAN, 3)]
    assert drawn != [each.url for each in requests_of(BY_CHANCE, URLS, PLAN, 4)]
    tasks = [{each.task for each in asked[arm.name]} for arm in (BY_LOAD, WITHOUT_DRAFTS)]
    assert tasks == [{f"{kind}_drafted" for kind in MAX_TOKENS}, set(MAX_TOKENS)]


def test_a_request_is_a_turn_of_its_task_and_may_end_early() -> None:
    [request, *_] = requests_of(BY_LOAD, URLS, PLAN, 0)
    body = json.loads(request.body())
    assert (body["task"], body["seed"], body["stream"]) == (request.task, 0, True)
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


@pytest.mark.timeout(300)  # two workers and a gateway
def test_an_arm_of_the_benchmark_runs_and_says_where_turns_went(tmp_path: Path) -> None:
    report_file = tmp_path / "buckets.json"
    options = ["--arms", "buckets", "--blocks", "1", "--requests", "2", "--mix", "short=1,open=1"]
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "gateway.cli", "bench", "buckets"),
            *(*options, "--rate", "50", "--json", str(report_file)),
        ],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    report = orjson.loads(report_file.read_bytes())
    assert report["arms"]["buckets"]["all"]["num_requests"] == 2
    assert report["arms"]["buckets"]["tokens_per_cpu_s"]["mean"] > 0.0
    # The warm-up's two turns and the block's. What is expected of a task moves with what its turns were.
    placed = report["placed"]["buckets"]
    assert sum(count for pools in placed.values() for count in pools.values()) == 4
    assert {pool for pools in placed.values() for pool in pools} == {"own"}
    assert placed["3"] == {"own": 2}
