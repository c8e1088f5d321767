"""Gateways for tests: the application under uvicorn in a thread, on a free port."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import httpx
import orjson
import pytest
import uvicorn

from tests.servers.upstream import MODEL, Loop, Upstream

if TYPE_CHECKING:
    from gateway.flow.deps import Deps
    from tests.conftest import RunningProcess

START_S = 60.0
REPOSITORY = Path(__file__).resolve().parent.parent.parent
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
PLAIN: dict[str, dict[str, Any]] = {
    CHAT: {"model": MODEL, "messages": [{"role": "user", "content": "hello"}]},
    COMPLETIONS: {"model": MODEL, "prompt": "hello"},
}


@dataclass(frozen=True, slots=True)
class Gateway:
    """A gateway that serves. ``deps`` are its parts, to look at, not to change."""

    url: str
    deps: Deps


@dataclass(frozen=True, slots=True)
class Scripted:
    """A gateway in front of one scripted upstream, shared by the tests that harm neither."""

    gateway: Gateway
    upstream: Upstream
    client: httpx.Client

    def post(self, path: str = CHAT, **body: Any) -> httpx.Response:
        """Send a request; ``messages`` and ``model`` are there unless they are given."""
        return self.client.post(path, json=PLAIN[path] | body)

    def stream(self, path: str = CHAT, **body: Any) -> list[Any]:
        """Return the events of a stream, parsed, ``[DONE]`` as it is."""
        response = self.post(path, stream=True, **body)
        assert response.status_code == 200, response.text
        return events_of(response.content)


def events_of(content: bytes) -> list[Any]:
    """Split a stream at its blank lines, by bytes; every frame must be whole."""
    *frames, rest = content.split(b"\n\n")
    assert rest == b""
    data = [frame.removeprefix(b"data: ") for frame in frames if not frame.startswith(b":")]
    return [each.decode() if each == b"[DONE]" else orjson.loads(each) for each in data]


class StartGateway(Protocol):
    """Starts a gateway before the given workers and waits until it has found them; settings by name."""

    def __call__(self, *workers: str, wait: bool = True, **settings: Any) -> Gateway: ...


@pytest.fixture
def start_gateway(valkey_url: str) -> Iterator[StartGateway]:
    """Start ``create_app`` under uvicorn, as ``python -m gateway`` does; all end with the test."""
    with contextlib.ExitStack() as running:

        def start(*workers: str, wait: bool = True, **settings: Any) -> Gateway:
            fields = {"redis_url": valkey_url, **settings}
            gateway = running.enter_context(serving(*workers, **fields))
            if wait:
                until(lambda: all(worker.is_reachable for worker in gateway.deps.pool.workers))
            return gateway

        yield start


@pytest.fixture(scope="session")
def shared_gateway(valkey_url: str, server_loop: Loop) -> Iterator[Scripted]:
    """One gateway that no failure takes its worker from, and its worker."""
    upstream = Upstream(server_loop, is_native=True)
    upstream.start()
    with (
        serving(upstream.url, redis_url=valkey_url, breaker_failures=100) as gateway,
        httpx.Client(base_url=gateway.url, timeout=60.0) as client,
    ):
        until(lambda: gateway.deps.pool.has_ready_worker)
        yield Scripted(gateway, upstream, client)
    upstream.stop()


@pytest.fixture(scope="session")
def real_gateway(valkey_url: str, worker_server: RunningProcess) -> Iterator[Gateway]:
    """One gateway in front of the session's real worker."""
    with serving(worker_server.url, redis_url=valkey_url) as gateway:
        until(lambda: gateway.deps.pool.has_ready_worker)
        yield gateway


@pytest.fixture
def scripted(shared_gateway: Scripted) -> Scripted:
    """The shared gateway; its upstream has forgotten what it received before."""
    shared_gateway.upstream.forget()
    return shared_gateway


@contextlib.contextmanager
def serving(*workers: str, **settings: Any) -> Iterator[Gateway]:
    # Here, so that tests of other parts need not load the gateway.
    from gateway.api.connection import bounded
    from gateway.app import create_app
    from gateway.settings import GatewaySettings

    fields: dict[str, Any] = {
        "workers": workers,
        "config_dir": REPOSITORY / "configs",
        "probe_interval_s": 0.2,
        "preload_encoder": False,
        **settings,
    }
    settings_of_it = GatewaySettings(**fields)
    app = create_app(settings_of_it)
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        app,
        lifespan="on",
        http=bounded(settings_of_it),
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    try:
        until(lambda: server.started or not thread.is_alive())
        assert server.started, "the gateway did not start"
        yield Gateway(f"http://127.0.0.1:{listener.getsockname()[1]}", app.state.deps)
    finally:
        server.should_exit = True
        thread.join(START_S)
        listener.close()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + START_S
    while not condition():
        assert time.monotonic() < deadline, "the server did not become ready"
        time.sleep(0.01)
