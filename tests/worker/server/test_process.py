"""The process: its ready line, its end, and a Redis that is not there."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import httpx
import pytest

if TYPE_CHECKING:
    from tests.conftest import RunningProcess, StartProcess, WaitUntil
    from tests.worker.server.conftest import ReadMetric


def endless(model: str, **fields: Any) -> dict[str, Any]:
    return {"model": model, "prompt": "Once", "max_tokens": 900, "ignore_eos": True, "stream": True, **fields}


def data_of(lines: Iterator[str]) -> Iterator[str]:
    return (line.removeprefix("data: ") for line in lines if line.startswith("data: "))


def test_a_sigterm_lets_the_running_stream_finish_and_nobody_in(
    start_process: StartProcess,
    worker_environment: Mapping[str, str],
    model_name: str,
    wait_until: WaitUntil,
) -> None:
    worker = start_process(["-m", "worker"], worker_environment)
    assert worker.url == f"http://127.0.0.1:{worker.url.rsplit(':', 1)[1]}"
    with (
        httpx.Client(base_url=worker.url, timeout=60) as client,
        client.stream("POST", "/v1/completions", json=endless(model_name, max_tokens=30)) as response,
    ):
        data = data_of(response.iter_lines())
        next(data)
        worker.signal(signal.SIGTERM)
        wait_until(lambda: httpx.get(f"{worker.url}/readyz").status_code == 503)
        assert httpx.get(f"{worker.url}/livez").status_code == 200
        refused = httpx.post(f"{worker.url}/v1/completions", json=endless(model_name))
        assert refused.status_code == 503
        assert refused.json()["error"]["code"] == "shutting_down"
        assert int(refused.headers["retry-after"]) >= 1
        *_, last, done = data
    assert json.loads(last)["choices"][0]["finish_reason"] == "length"
    assert done == "[DONE]"
    assert worker.process.wait(10) == 0
    assert [event["event"] for event in worker.events()].count("ready") == 1


@pytest.fixture
def lonely_worker(
    start_process: StartProcess,
    worker_environment: Mapping[str, str],
    free_port: Callable[[], int],
    tmp_path: Any,
) -> RunningProcess:
    """A worker whose Redis is not there, and who waits for nobody at the end."""
    environment = {
        **worker_environment,
        "NG_REDIS_URL": f"redis://127.0.0.1:{free_port()}/0",
        "NG_WORKER_SPILL_DIR": str(tmp_path / "spill"),
        "NG_WORKER_DRAIN_S": "0.3",
    }
    return start_process(["-m", "worker"], environment)


def test_without_redis_requests_are_served_and_at_the_end_the_stream_says_why_it_ends(
    lonely_worker: RunningProcess, model_name: str, read_metric: ReadMetric, wait_until: WaitUntil
) -> None:
    url = lonely_worker.url
    controls = {"gravity": json.dumps({"trace": {"turn_id": "lonely"}})}
    request = endless(model_name, max_tokens=5, stream=False, vllm_xargs=controls)
    answer = httpx.post(f"{url}/v1/completions", json=request, timeout=60)
    assert answer.json()["usage"]["completion_tokens"] == 5
    assert httpx.get(f"{url}/readyz").status_code == 200
    wait_until(lambda: read_metric(url, "ng_worker_trace_steps_spilled_total") == 5)
    assert read_metric(url, "ng_worker_trace_spill_bytes") > 0

    with httpx.stream("POST", f"{url}/v1/completions", json=endless(model_name), timeout=60) as response:
        data = data_of(response.iter_lines())
        next(data)
        lonely_worker.signal(signal.SIGTERM)
        *_, error, done = data
    assert json.loads(error)["error"]["code"] == "shutting_down"
    assert done == "[DONE]"
    assert lonely_worker.process.wait(10) == 0


@pytest.mark.parametrize(
    ("name", "value", "word"),
    [
        ("NG_WORKER_PORT", "http", "port"),
        ("NG_WORKER_DTYPE", "int3", "dtype"),
        ("NG_WORKER_MODEL", "/no/such/model", "/no/such/model"),
        ("NG_REDIS_URL", "ftp://nowhere", "NG_REDIS_URL"),
    ],
)
def test_a_setting_that_cannot_be_is_told_in_one_line(name: str, value: str, word: str) -> None:
    finished = subprocess.run(
        [sys.executable, "-m", "worker"],
        env={**os.environ, "NG_WORKER_PORT": "0", name: value},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert finished.returncode == 2
    [line] = [json.loads(line) for line in finished.stdout.splitlines() if line.startswith("{")]
    assert line["level"] == "error"
    assert word in line["event"]
    assert "Traceback" not in finished.stdout + finished.stderr
