"""Valkey, a worker and the gateway, started together and ended together."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httpx

from gateway.errors import StackError
from gateway.stack.child import Child, Command, OnLine
from gateway.stack.leash import Leash
from gateway.stack.ports import LOOPBACK, require_free, valkey_url
from gateway.stack.valkey import valkey_command, wait_for_ping

STORE_TIMEOUT_S = 5.0
ROUTE_TIMEOUT_S = 15.0
READY_TIMEOUT_S = 300.0
"""The first start of all converts the model."""
GRACE_S = 15.0
POLL_S = 0.05
OWN_NAME = "gravity"
"""Whose lines these are, among the children's."""


@dataclass(frozen=True, slots=True)
class StackPlan:
    """What to start, and where. ``redis_url`` names a server to use instead of the embedded one."""

    gateway_port: int | None
    """None starts no gateway."""
    worker_port: int
    valkey_port: int
    redis_url: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    """Settings for worker and gateway beside the ports and URLs."""

    def check_ports(self) -> None:
        """Raise StackError for the first port that cannot be had."""
        if self.gateway_port is not None:
            require_free(self.gateway_port, "gateway", "--port")
        require_free(self.worker_port, "worker", "--worker-port")
        if self.redis_url is None:
            require_free(self.valkey_port, "embedded Valkey", "--valkey-port")


@dataclass(frozen=True, slots=True)
class Stack:
    """A running stack. ``gateway_url`` is empty where the plan has no gateway."""

    redis_url: str
    worker_url: str
    gateway_url: str
    children: tuple[Child, ...]

    async def wait_for_death(self) -> Child:
        """Return the first process that ends."""
        ends = {asyncio.create_task(child.wait()): child for child in self.children}
        try:
            done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            return ends[done.pop()]
        finally:
            for task in ends:
                task.cancel()


@asynccontextmanager
async def running(plan: StackPlan, on_line: OnLine) -> AsyncIterator[Stack]:
    """Start the plan's processes, wait until they serve, and end them all on the way out.

    Raises StackError with the reason and the last output where one does not start.
    """
    plan.check_ports()
    children: list[Child] = []

    async def start(command: Command) -> Child:
        child = await Child.start(command, leash, on_line)
        children.append(child)
        on_line(OWN_NAME, f"started {child.name}, process {child.pid}")
        return child

    with Leash() as leash:
        try:
            redis_url = plan.redis_url or valkey_url(plan.valkey_port)
            store = None if plan.redis_url else await start(valkey_command(plan.valkey_port))
            await wait_for_ping(redis_url, STORE_TIMEOUT_S, store)
            servers = [await start(command) for command in _commands(plan, redis_url)]
            urls = await _ready_urls(servers)
            yield Stack(redis_url, urls["worker"], urls.get("gateway", ""), tuple(children))
        finally:
            # The gateway first: it drains while the worker still answers.
            for child in reversed(children):
                await child.stop(GRACE_S)


def _commands(plan: StackPlan, redis_url: str) -> list[Command]:
    environment = {**plan.environment, "NG_REDIS_URL": redis_url}
    worker = environment | {"NG_WORKER_HOST": LOOPBACK, "NG_WORKER_PORT": str(plan.worker_port)}
    commands = [Command("worker", (sys.executable, "-m", "worker"), worker)]
    if plan.gateway_port is not None:
        worker_url = f"http://{LOOPBACK}:{plan.worker_port}"
        gateway = environment | {
            "NG_HOST": LOOPBACK,
            "NG_PORT": str(plan.gateway_port),
            "NG_WORKERS": worker_url,
        }
        commands.append(Command("gateway", (sys.executable, "-m", "gateway"), gateway))
    return commands


async def _ready_urls(servers: list[Child]) -> dict[str, str]:
    lines = await asyncio.gather(*(server.wait_ready(READY_TIMEOUT_S) for server in servers))
    urls = {server.name: str(line["url"]) for server, line in zip(servers, lines, strict=True)}
    if "gateway" in urls:
        await _wait_for_route(urls["gateway"], servers)
    return urls


async def _wait_for_route(gateway_url: str, servers: list[Child]) -> None:
    """Return once the gateway has found its worker: /readyz answers 200."""
    async with httpx.AsyncClient(base_url=gateway_url, timeout=5.0) as client:
        for _ in range(int(ROUTE_TIMEOUT_S / POLL_S)):
            try:
                answer = await client.get("/readyz")
            except httpx.TransportError as error:
                reason = str(error)
            else:
                if answer.status_code == httpx.codes.OK:
                    return
                reason = answer.text
            dead = next((server for server in servers if server.has_ended), None)
            if dead is not None:
                raise StackError(f"{dead.name} ended at its start:\n{dead.last_output}")
            await asyncio.sleep(POLL_S)
    raise StackError(f"the gateway at {gateway_url} does not become ready: {reason}")
