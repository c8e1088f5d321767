"""The processes of a run: Valkey with its file, two workers, two gateways with the configuration in Redis."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import httpx

from gateway.chaos.place import Place
from gateway.settings import GatewaySettings
from gateway.stack.child import Command
from gateway.stack.environment import child_environment
from gateway.stack.leash import Leash
from gateway.stack.ports import LOOPBACK, free_port, valkey_url
from gateway.stack.valkey import valkey_command, wait_for_ping

NAMESPACE = "chaos"
DISK_BYTES = 8 * 1024
"""What the second worker may write to a file: with Redis away its disk is soon full."""
SMALL_DISK = (
    "import resource, runpy, sys; "
    f"resource.setrlimit(resource.RLIMIT_FSIZE, ({DISK_BYTES}, {DISK_BYTES})); "
    "sys.argv = ['worker']; runpy.run_module('worker', run_name='__main__')"
)
PING_S = 30.0
BEGIN_S = 90.0
"""An answer has begun by then, or it is refused: more than a new gateway waits for its encoder."""
MAX_CONTEXT = 1024
WORKER_SETTINGS = {
    "NG_WORKER_THREADS": "1",
    "NG_WORKER_MAX_CONTEXT": str(MAX_CONTEXT),
    "NG_WORKER_MAX_BATCH": "16",
    # Full within the warm-up: what fills slowly up to its bound looks like a leak.
    "NG_WORKER_PREFIX_CACHE_TOKENS": "1024",
    "NG_WORKER_WRITE_TIMEOUT_S": "10",
}
GATEWAY_SETTINGS = {
    "NG_CONFIG_STORE": "redis",
    "NG_CONFIG_NAMESPACE": NAMESPACE,
    "NG_CONNECT_TIMEOUT_S": "1",
    "NG_PROBE_TIMEOUT_S": "2",
    "NG_FIRST_TOKEN_TIMEOUT_S": "25",
    "NG_IDLE_TIMEOUT_S": "15",
    "NG_REQUEST_TIMEOUT_S": "40",
    "NG_BEGIN_TIMEOUT_S": f"{BEGIN_S:g}",
    "NG_WRITE_TIMEOUT_S": "5",
    "NG_BREAKER_COOLDOWN_S": "2",
}


@dataclass(frozen=True, slots=True)
class Site:
    """Everything that runs."""

    valkey: Place
    workers: tuple[Place, ...]
    gateways: tuple[Place, ...]
    settings: GatewaySettings
    """As the gateways have them: what the centre is opened with."""

    @property
    def redis_url(self) -> str:
        return valkey_url(self.valkey.port)

    @property
    def places(self) -> tuple[Place, ...]:
        return (self.valkey, *self.workers, *self.gateways)


def url_of(place: Place) -> str:
    return f"http://{LOOPBACK}:{place.port}"


@asynccontextmanager
async def running(planned: Callable[[Leash], Site]) -> AsyncIterator[Site]:
    """Start everything and end it on the way out. Raises StackError."""
    with Leash() as leash:
        site = planned(leash)
        try:
            await site.valkey.start()
            await wait_for_ping(site.redis_url, PING_S, site.valkey.child)
            first, *others = (*site.workers, *site.gateways)
            await first.start()  # alone: the first start of all converts the model
            async with asyncio.TaskGroup() as starting:
                for place in others:
                    starting.create_task(place.start())
            yield site
        finally:
            for place in reversed(site.places):
                await place.stop()


async def metrics_of(client: httpx.AsyncClient, place: Place) -> Mapping[str, float]:
    """Return the figures without labels."""
    text = (await client.get(url_of(place) + "/metrics")).text
    lines = (line.split() for line in text.splitlines() if not line.startswith("#") and "{" not in line)
    return {line[0]: float(line[1]) for line in lines}


def site_of_chaos(folder: Path, leash: Leash) -> Site:
    """Return two workers and two gateways that keep what they write below ``folder``."""
    ports = [free_port() for _ in range(5)]
    store, first, second, *fronts = ports
    redis_url = valkey_url(store)
    own = child_environment() | {"NG_REDIS_URL": redis_url}
    durable = ("--appendonly", "yes", "--dir", str(folder))
    in_memory = valkey_command(store)
    valkey = replace(in_memory, arguments=(*in_memory.arguments, *durable))

    def worker(name: str, port: int, arguments: tuple[str, ...]) -> Place:
        settings = WORKER_SETTINGS | {"NG_WORKER_HOST": LOOPBACK, "NG_WORKER_PORT": str(port)}
        settings["NG_WORKER_SPILL_DIR"] = str(folder / name)
        return Place(Command(name, (sys.executable, *arguments), own | settings), leash, port)

    def gateway(name: str, port: int) -> Place:
        workers = f"http://{LOOPBACK}:{first},http://{LOOPBACK}:{second}"
        settings = GATEWAY_SETTINGS | {"NG_HOST": LOOPBACK, "NG_PORT": str(port), "NG_WORKERS": workers}
        settings["NG_STATE_DIR"] = str(folder / name)
        return Place(Command(name, (sys.executable, "-m", "gateway"), own | settings), leash, port)

    return Site(
        Place(valkey, leash, store, tells_ready=False),
        (worker("worker-1", first, ("-m", "worker")), worker("worker-2", second, ("-c", SMALL_DISK))),
        tuple(gateway(f"gateway-{number}", port) for number, port in enumerate(fronts, 1)),
        GatewaySettings(
            redis_url=redis_url,
            config_store="redis",
            config_namespace=NAMESPACE,
            config_dir=own["NG_CONFIG_DIR"],
        ),
    )
