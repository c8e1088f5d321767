"""The command ``gravity``: what it lists, what it passes on, how it fails."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def gravity() -> Run:
    def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "gateway.cli", *arguments],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


def test_it_lists_its_commands(gravity: Run) -> None:
    listed = gravity("--help")
    assert listed.returncode == 0
    names = [line.split()[0] for line in listed.stdout.partition("Commands:")[2].splitlines() if line.strip()]
    expected = {"up", "demo", "gateway", "worker", "bench", "replay", "example", "config", "trace"}
    assert expected <= set(names)


def test_bench_passes_its_arguments_on(gravity: Run) -> None:
    printed = gravity("bench", "decode", "--help")
    assert printed.returncode == 0
    assert "--json" in printed.stdout


def test_worker_and_gateway_end_with_their_processes_status(gravity: Run) -> None:
    for command, setting in (("worker", {"NG_WORKER_PORT": "none"}), ("gateway", {"NG_PORT": "none"})):
        ended = gravity(command, **setting)
        assert ended.returncode not in (0, 1), ended
        assert "port" in ended.stdout + ended.stderr


def test_an_unknown_option_is_refused(gravity: Run) -> None:
    refused = gravity("worker", "--prot", "9")
    assert refused.returncode == 2
    assert "--prot" in refused.stderr


def test_a_command_that_cannot_run_says_why_in_one_line(gravity: Run) -> None:
    failed = gravity("replay", "x", "--redis", "redis://127.0.0.1:1/0")
    assert failed.returncode == 2
    assert failed.stderr.startswith("gravity: Redis at redis://127.0.0.1:1/0 does not answer")
    assert len(failed.stderr.splitlines()) == 1
