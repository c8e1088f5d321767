"""``gravity bench gateway``: its figures from known samples, and the whole of it, once, in short."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import orjson
import pytest

from gateway.bench.cells import LONG_STREAM, PLAIN, SHORT_STREAM
from gateway.bench.environments import find_python
from gateway.bench.figures import DIRECT, Sample, Samples, cell_figures, chunk_us, cpu_ratio, sample_of
from gateway.bench.load import Measured, Run, request_bytes
from gateway.bench.measure import require_all
from gateway.bench.targets import GATEWAY, LITELLM
from gateway.bench.usage import Usage
from gateway.errors import CommandError

CELL = PLAIN[0]


def sampled(cpu_ms: float, p50_ms: float = 1.0) -> Sample:
    return Sample(cpu_ms, p50_ms, 2.0, 0.5, 100.0, 0)


def test_latency_is_what_was_added_in_the_same_round() -> None:
    samples: Samples = {
        (DIRECT, CELL.name): [sampled(0.0, 1.0), sampled(0.0, 5.0)],
        (GATEWAY, CELL.name): [sampled(0.4, 1.5), sampled(0.6, 5.7)],
    }
    figures = cell_figures(samples, GATEWAY, CELL)
    assert figures.cpu_ms.mean == pytest.approx(0.5)
    assert figures.added_p50_ms.mean == pytest.approx(0.6)
    assert 0.5 - 1e-9 <= figures.added_p50_ms.low <= figures.added_p50_ms.high <= 0.7 + 1e-9


def test_a_chunk_costs_what_a_longer_stream_costs_more() -> None:
    samples: Samples = {
        (GATEWAY, SHORT_STREAM.name): [sampled(1.0), sampled(1.0)],
        (GATEWAY, LONG_STREAM.name): [sampled(6.0), sampled(8.0)],  # 100 chunks more for 5 and 7 ms
    }
    assert chunk_us(samples, GATEWAY).mean == pytest.approx(60.0)


def test_a_ratio_is_of_sums_over_the_rounds() -> None:
    samples: Samples = {
        (LITELLM, CELL.name): [sampled(10.0), sampled(14.0)],
        (GATEWAY, CELL.name): [sampled(0.5), sampled(0.7)],
    }
    assert cpu_ratio(samples, (LITELLM, CELL.name), (GATEWAY, CELL.name)).mean == pytest.approx(20.0)


def test_a_sample_divides_the_processor_time_by_all_requests_that_were_sent() -> None:
    sample = sample_of(Measured([1.0, 2.0, 3.0], [0.5, 0.5, 0.5], 0.5, num_failed=1), cpu_s=0.008)
    assert sample.cpu_ms == pytest.approx(2.0)
    assert (sample.p50_ms, sample.requests_per_s) == (2.0, 6.0)


@pytest.mark.parametrize("num_bytes", [1024, 60 * 1024])
def test_a_body_has_the_size_that_was_asked_for(num_bytes: int) -> None:
    head, _, body = request_bytes(Run(80, 1, num_bytes, 1.0, num_chunks=7), "m").partition(b"\r\n\r\n")
    assert f"content-length: {len(body)}\r\n".encode() in head + b"\r\n"
    assert abs(len(body) - num_bytes) < num_bytes / 20 + 100
    assert (orjson.loads(body)["stream"], orjson.loads(body)["max_tokens"]) == (True, 7)


def test_processor_time_of_a_process_is_what_it_says_of_itself() -> None:
    usage = Usage(os.getpid(), "this process")
    before, own_before = usage.cpu_s(), time.process_time()
    while time.process_time() - own_before < 0.05:
        pass
    assert usage.cpu_s() - before == pytest.approx(time.process_time() - own_before, abs=0.03)


def test_memory_is_not_judged_by_fewer_requests_than_were_meant() -> None:
    run = Run(80, 1, 1024, 600.0, max_requests=3)
    require_all(Measured([1.0] * 3, [1.0] * 3, 1.0), run, "gateway, memory")
    with pytest.raises(CommandError, match="gateway, memory: 2 of 3 requests answered in 600 s, 1 failed"):
        require_all(Measured([1.0] * 2, [1.0] * 2, 600.0, 1), run, "gateway, memory")


def test_an_interpreter_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="is not there"):
        find_python(LITELLM, tmp_path / "python")


def test_the_whole_benchmark_runs_and_says_what_it_left_out(tmp_path: Path) -> None:
    report_file = tmp_path / "gateway.json"
    command = [sys.executable, "-m", "gateway.cli", "bench", "gateway", "--quick", "--json", str(report_file)]
    ended = subprocess.run(
        command,
        env={**os.environ, "NG_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    report = orjson.loads(report_file.read_bytes())
    assert list(report["cells"]) == [DIRECT, GATEWAY]
    assert [reason.split()[0] for reason in report["left_out"]] == ["litellm", "vllm-router"]
    ours = report["cells"][GATEWAY]
    assert all(figures["num_failed"] == 0 for figures in ours.values())
    assert 0.0 < ours["1 KB, 1"]["cpu_ms"]["low"] <= ours["1 KB, 1"]["cpu_ms"]["high"] < 100.0
    assert report["chunk_cpu_us"][GATEWAY]["mean"] > 0.0
    assert report["memory_mib"]["after_models_mib"] > 10.0
    assert "litellm is not installed" in ended.stdout
