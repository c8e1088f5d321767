"""``gravity bench serve``: its mix, arrivals and figures from known answers; the whole of it, in short."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import orjson
import pytest

from gateway.bench.serve.arrivals import Arrivals, poisson_times_s
from gateway.bench.serve.driving import Answered, Asked, Driven
from gateway.bench.serve.engines import LLAMA_CPP, VLLM
from gateway.bench.serve.figures import Block, engine_figures, kind_figures, ratios
from gateway.bench.serve.mix import (
    EQUAL,
    JSON,
    MAX_TOKENS,
    NUM_CHUNKS,
    OPEN,
    RAG,
    SHORT,
    draw_jobs,
    parse_shares,
)
from gateway.errors import CommandError


def block(elapsed_s: float, cpu_s: float, *answers: Answered) -> Block:
    return Block(Driven(answers or (Answered(SHORT, 11, 1.0, 3.0),), elapsed_s), cpu_s)


def test_a_mix_is_shared_out_exactly_and_drawn_anew_for_every_block() -> None:
    jobs = draw_jobs({SHORT: 3.0, RAG: 1.0}, 9, (0, 1))
    assert sorted(job.kind for job in jobs) == [RAG] * 2 + [SHORT] * 7  # 2.25 and 6.75
    assert jobs == draw_jobs({SHORT: 3.0, RAG: 1.0}, 9, (0, 1))
    others = draw_jobs({SHORT: 3.0, RAG: 1.0}, 9, (0, 2))
    assert not {job.text for job in jobs} & {job.text for job in others}


def test_every_kind_has_its_form_and_its_length() -> None:
    texts = {job.kind: job for job in draw_jobs(EQUAL, 4, (5,))}
    assert set(texts) == {SHORT, JSON, RAG, OPEN}
    assert {kind: job.max_tokens for kind, job in texts.items()} == MAX_TOKENS
    assert texts[RAG].text.count("\n\n[") + 1 == NUM_CHUNKS
    assert "JSON object" in texts[JSON].text


@pytest.mark.parametrize("text", ["", "short", "short=x", "short=-1,rag=2", "short=nan", "short=0", "poem=1"])
def test_a_mix_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(CommandError, match="--mix"):
        parse_shares(text)


def test_arrivals_are_those_of_a_poisson_process() -> None:
    times = poisson_times_s(4.0, 20_001, (3,))
    gaps = np.diff(times)
    assert times[0] == 0.0
    assert times == poisson_times_s(4.0, 20_001, (3,))
    assert gaps.mean() == pytest.approx(0.25, rel=0.03)  # standard error 0.7 %
    assert gaps.std() == pytest.approx(0.25, rel=0.05)  # of an exponential: its mean
    assert (gaps > 0.25).mean() == pytest.approx(np.exp(-1.0), abs=0.015)


@pytest.mark.parametrize(("num_clients", "rate_per_s"), [(0, None), (1, 0.0), (1, float("nan"))])
def test_arrivals_that_never_come_are_refused(num_clients: int, rate_per_s: float | None) -> None:
    with pytest.raises(CommandError):
        Arrivals(num_clients, rate_per_s)


def test_a_request_says_the_same_to_every_engine() -> None:
    body = json.loads(Asked(SHORT, (7, 8), 3).body())
    assert (body["prompt"], body["max_tokens"], body["temperature"]) == ([7, 8], 3, 0.0)
    assert (body["ignore_eos"], body["stream_options"]) == (True, {"include_usage": True})


def test_rates_are_sums_over_the_blocks() -> None:
    figures = engine_figures([block(2.0, 1.0), block(3.0, 1.2)])
    assert figures.tokens_per_s.mean == pytest.approx(22 / 5)
    assert figures.requests_per_s.mean == pytest.approx(2 / 5)
    assert figures.tokens_per_cpu_s.mean == pytest.approx(10.0)
    assert figures.cpu_s_per_block.low == pytest.approx(1.0)
    assert figures.cpu_s_per_block.high == pytest.approx(1.2)


def test_the_first_token_does_not_count_towards_the_time_of_the_others() -> None:
    figures = kind_figures([Answered(RAG, 11, 1.0, 3.0), Answered(RAG, 1, 2.0, 2.0)])
    assert figures.per_token_s.p50 == pytest.approx(0.1)  # between 0.2 and 0
    assert figures.first_token_s.p99 == pytest.approx(1.99)
    assert figures.total_s.p50 == pytest.approx(2.5)


def test_a_ratio_above_one_means_that_we_were_faster() -> None:
    ours = [block(2.0, 1.0, Answered(OPEN, 11, 1.0, 2.0)), block(4.0, 2.0, Answered(OPEN, 11, 1.0, 3.0))]
    theirs = [block(6.0, 2.0, Answered(OPEN, 11, 3.0, 6.0)), block(6.0, 2.5, Answered(OPEN, 11, 1.0, 7.0))]
    compared = ratios(ours, theirs)
    assert compared.throughput.mean == pytest.approx(2.0)
    assert [compared.throughput.low, compared.throughput.high] == pytest.approx([1.5, 3.0])
    assert compared.tokens_per_cpu_s.mean == pytest.approx(1.5)
    assert compared.first_token_speed.mean == pytest.approx(2.0)
    assert compared.per_token_speed.mean == pytest.approx(3.0)  # 0.3 + 0.6 over 0.1 + 0.2


def test_the_whole_benchmark_runs_and_says_what_it_left_out(tmp_path: Path, model_path: Path) -> None:
    report_file = tmp_path / "serve.json"
    options = ["--mix", "short=1", "--requests", "2", "--clients", "2", "--blocks", "1"]
    rivals = ["--rivals", f"{LLAMA_CPP},{VLLM}", "--json", str(report_file)]
    (tmp_path / model_path.name).symlink_to(model_path)
    ended = subprocess.run(
        [sys.executable, "-m", "gateway.cli", "bench", "serve", *options, *rivals],
        env={**os.environ, "NG_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    report = orjson.loads(report_file.read_bytes())
    ours = report["engines"]["ours"]
    assert ours["all"]["num_requests"] == ours["by_kind"][SHORT]["num_requests"] == 2
    assert ours["tokens_per_s"]["mean"] > 0.0
    assert ours["cpu_s_per_block"]["low"] > 0.0
    assert 0.0 < ours["all"]["first_token_s"]["p50"] <= ours["all"]["total_s"]["p50"]
    assert [reason.split(":")[0] for reason in report["left_out"]] == [LLAMA_CPP, VLLM]
    assert "--install" in ended.stdout
