"""``gravity up``: everything starts, and nothing stays."""

from __future__ import annotations

import os
import re
import signal
import socket
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from redis import Redis


@pytest.fixture(scope="session")
def ports(free_port: Callable[[], int]) -> Callable[[], list[str]]:
    """Options that put all three processes on free ports."""

    def options() -> list[str]:
        names = ("--port", "--worker-port", "--valkey-port")
        return [part for name in names for part in (name, str(free_port()))]

    return options


def started(output: str) -> dict[str, int]:
    """The pids of the processes that it says it started."""
    lines = re.findall(r"^gravity \| started (\w+), process (\d+)$", output, re.MULTILINE)
    return {name: int(pid) for name, pid in lines}


def test_it_serves_through_all_three_processes(served: Any) -> None:
    assert httpx.get(f"{served.gateway_url}/readyz").status_code == 200
    assert httpx.get(f"{served.worker_url}/readyz").status_code == 200
    with Redis.from_url(served.redis_url) as redis:
        assert redis.ping()
        assert redis.config_get("save") == {"save": ""}
    assert set(started(served.running.output)) == {"valkey", "worker", "gateway"}


def test_sigterm_ends_it_with_status_0_and_leaves_nothing(
    start_command: Any, ports: Any, wait_until: Any, is_running: Any
) -> None:
    running = start_command(["up", *ports()], {})
    children = wait_until(lambda: len(started(running.output)) == 3 and started(running.output), timeout_s=30)
    running.signal(signal.SIGTERM)
    assert running.process.wait(30) == 0, running.output
    assert not any(map(is_running, children.values()))
    assert "ended by SIGTERM; all processes have ended" in running.output


def test_killing_it_leaves_nothing_either(
    start_command: Any, ports: Any, wait_until: Any, is_running: Any
) -> None:
    running = start_command(["up", *ports()], {})
    children = wait_until(lambda: len(started(running.output)) == 3 and started(running.output), timeout_s=30)
    running.signal(signal.SIGKILL)
    wait_until(lambda: not any(map(is_running, children.values())), timeout_s=20.0)


def test_when_one_process_dies_the_others_are_ended_and_the_status_is_1(
    start_command: Any, ports: Any, wait_until: Any, is_running: Any
) -> None:
    running = start_command(["up", *ports()], {"NG_WORKER_THREADS": "1"})
    wait_until(lambda: "gravity | ready" in running.output, timeout_s=120.0)
    children = started(running.output)
    os.kill(children["worker"], signal.SIGKILL)
    assert running.process.wait(30) == 1
    assert "worker ended with status -9; the others were ended too" in running.output
    assert not any(map(is_running, children.values()))


def test_a_worker_that_cannot_start_is_an_error_with_its_words(
    start_command: Any, ports: Any, is_running: Any
) -> None:
    running = start_command(["up", *ports()], {"NG_WORKER_MODEL": "/no/such/model"})
    assert running.process.wait(90) == 2
    assert "gravity: worker ended with status" in running.output
    assert "/no/such/model" in running.output
    assert not any(map(is_running, started(running.output).values()))


def test_a_port_in_use_is_an_error_that_names_the_option(start_command: Any) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        running = start_command(["up", "--port", str(port)], {})
        assert running.process.wait(30) == 2
        assert f"port {port}, meant for the gateway" in running.output
        assert "--port" in running.output


def test_a_redis_that_does_not_answer_is_an_error_without_its_password(
    start_command: Any, ports: Any, free_port: Any
) -> None:
    url = f"redis://:very-secret@127.0.0.1:{free_port()}/0"
    running = start_command(["up", *ports()], {"NG_REDIS_URL": url})
    assert running.process.wait(60) == 2
    assert "no Redis at redis://127.0.0.1:" in running.output
    assert "very-secret" not in running.output
