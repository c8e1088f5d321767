"""A gateway in front of a scripted worker of each level: the reports hold for foreign servers too."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.conftest import WaitUntil
from tests.servers.gateway import Scripted, serving
from tests.servers.upstream import Loop, Upstream


@pytest.fixture(scope="session")
def opaque_gateway(valkey_url: str, server_loop: Loop, wait_until: WaitUntil) -> Iterator[Scripted]:
    """One gateway that no failure takes its opaque worker from, and that worker."""
    upstream = Upstream(server_loop, is_native=False)
    upstream.start()
    with (
        serving(upstream.url, redis_url=valkey_url, breaker_failures=100) as gateway,
        httpx.Client(base_url=gateway.url, timeout=60.0) as client,
    ):
        wait_until(lambda: gateway.deps.pool.has_ready_worker)
        yield Scripted(gateway, upstream, client)
    upstream.stop()


@pytest.fixture(params=["shared_gateway", "opaque_gateway"], ids=["native", "opaque"])
def scripted_at_each_level(request: pytest.FixtureRequest) -> Scripted:
    """The shared gateway of each level; its upstream has forgotten what it received before."""
    scripted: Scripted = request.getfixturevalue(request.param)
    scripted.upstream.forget()
    return scripted
