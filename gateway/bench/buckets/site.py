"""The processes: Valkey, two workers of different settings, a gateway for each way to choose one."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import orjson

from gateway.bench.buckets.arms import BUCKETS, GATEWAYS, MAX_DRAFTS
from gateway.bench.serve.driving import MODEL
from gateway.bench.usage import Usage
from gateway.errors import StackError
from gateway.stack.child import Child, Command, keep_quiet
from gateway.stack.leash import Leash
from gateway.stack.ports import LOOPBACK, free_port, valkey_url
from gateway.stack.valkey import valkey_command, wait_for_ping

READY_S = 300.0
ROUTE_S = 30.0
STORE_S = 5.0
GRACE_S = 15.0
POLL_S = 0.1
CONTEXT, BATCH = 1_024, 16
_PLACED = re.compile(r'^gravity_bucket_pool_total\{bucket="(\d+)",pool="(\w+)"\} (\S+)$', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Site:
    """URLs and processor time of the gateways by their name, of the workers together."""

    urls: Mapping[str, str]
    gateways: Mapping[str, Usage]
    workers: Sequence[Usage]
    model: str
    """What the workers call theirs."""

    def cpu_s(self, gateways: Sequence[str]) -> float:
        """Return the processor time so far of both workers and of these gateways."""
        return sum(usage.cpu_s() for usage in (*self.workers, *(self.gateways[name] for name in gateways)))

    async def placed(self, gateway: str) -> dict[str, dict[str, int]]:
        """Return how many turns went to which pool, by bucket: own, shared, other."""
        async with httpx.AsyncClient(base_url=self.urls[gateway]) as client:
            text = (await client.get("/metrics")).text
        found: dict[str, dict[str, int]] = {}
        for bucket, pool, count in _PLACED.findall(text):
            found.setdefault(bucket, {})[pool] = int(float(count))
        return found


@asynccontextmanager
async def running(
    model_folder: Path, config_folder: Path, gateway_names: Collection[str]
) -> AsyncIterator[Site]:
    """Start all, wait until these gateways have their workers, end all. Raises StackError."""
    async with AsyncExitStack() as stack:
        leash = stack.enter_context(Leash())

        async def start(command: Command) -> Child:
            child = await Child.start(command, leash, keep_quiet)
            stack.push_async_callback(child.stop, GRACE_S)
            return child

        port = free_port()
        store = await start(valkey_command(port))
        await wait_for_ping(valkey_url(port), STORE_S, store)
        shared = {"NG_REDIS_URL": valkey_url(port)}
        ports = {name: free_port() for name in BUCKETS}
        workers = [
            await start(worker_command(name, model_folder, shared | {"NG_WORKER_PORT": str(ports[name])}))
            for name in BUCKETS
        ]
        gateways = {
            name: await start(gateway_command(name, ports, config_folder, shared)) for name in gateway_names
        }
        for worker in workers:
            await worker.wait_ready(READY_S)
        urls = {name: str((await child.wait_ready(READY_S))["url"]) for name, child in gateways.items()}
        for name, url in urls.items():
            await _has_workers(url, gateways[name])
        yield Site(
            urls,
            {name: Usage(child.pid, name) for name, child in gateways.items()},
            [Usage(worker.pid, worker.name) for worker in workers],
            MODEL,
        )


def worker_command(name: str, model_folder: Path, shared: Mapping[str, str]) -> Command:
    """Return what starts a worker with the settings of this name."""
    environment = {
        **shared,
        "NG_WORKER_MODEL": str(model_folder),
        "NG_WORKER_SERVED_NAME": MODEL,
        "NG_WORKER_HOST": LOOPBACK,
        "NG_WORKER_THREADS": "1",
        "NG_WORKER_MAX_CONTEXT": str(CONTEXT),
        "NG_WORKER_MAX_BATCH": str(BATCH),
        "NG_WORKER_MAX_DRAFT": str(MAX_DRAFTS[name]),
    }
    return Command(f"worker {name}", (sys.executable, "-m", "worker"), environment)


def gateway_command(
    name: str, ports: Mapping[str, int], config_folder: Path, shared: Mapping[str, str]
) -> Command:
    """Return what starts the gateway of this name before workers at these ports."""
    urls = {worker: f"http://{LOOPBACK}:{ports[worker]}" for worker in GATEWAYS[name]}
    environment = {
        **shared,
        "NG_HOST": LOOPBACK,
        "NG_PORT": "0",
        "NG_CONFIG_DIR": str(config_folder),
        "NG_CONFIG_STORE": "files",
        "NG_PRELOAD_ENCODER": "false",
        "NG_PATIENCE_FACTOR": "0",  # nobody is raced: what is done twice would count as work
        "NG_WORKERS": ",".join(urls.values()),
    }
    if name == "buckets":
        buckets = {url: BUCKETS[worker] for worker, url in urls.items()}
        environment["NG_WORKER_BUCKETS"] = orjson.dumps(buckets).decode()
    return Command(f"gateway {name}", (sys.executable, "-m", "gateway"), environment)


async def _has_workers(url: str, child: Child) -> None:
    """Return once the gateway finds all of its workers ready."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + ROUTE_S
    async with httpx.AsyncClient(base_url=url, timeout=5.0) as client:
        while loop.time() < deadline and not child.has_ended:
            workers = (await client.get("/health")).json()["workers"]
            if all(worker["is_ready"] for worker in workers):
                return
            await asyncio.sleep(POLL_S)
    raise StackError(f"{child.name} does not find its workers:\n{child.last_output[-2000:]}")
