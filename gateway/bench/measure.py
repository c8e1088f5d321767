"""Starts everything, measures in turn, and takes it all down."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from gateway.bench.cells import KIB, Cell, Plan
from gateway.bench.environments import find_python
from gateway.bench.figures import DIRECT, Sample, Samples, sample_of
from gateway.bench.load import Measured, Run
from gateway.bench.loader import Loader, loading
from gateway.bench.running import Running, alone
from gateway.bench.targets import (
    GATEWAY,
    LITELLM,
    VLLM_ROUTER,
    Surroundings,
    Target,
    gateway_target,
    litellm_target,
    vllm_router_target,
)
from gateway.bench.upstream import MODEL
from gateway.bench.usage import Usage
from gateway.errors import CommandError, StackError
from gateway.stack.child import Child, Command, keep_quiet
from gateway.stack.leash import Leash
from gateway.stack.ports import free_port, valkey_url
from gateway.stack.valkey import valkey_command, wait_for_ping

READY_S = 60.0
GRACE_S = 10.0
POLL_S = 0.1
WARM_UP_S = 0.3
LEAST_ROUNDS = 2
LONG_S = 600.0
CONNECTIONS_FOR_MEMORY = 16

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Rivals:
    """Interpreters that have the other proxies; None is found, or left out."""

    litellm: Path | None = None
    vllm_router: Path | None = None


@dataclass(frozen=True, slots=True)
class Memory:
    """The gateway's resident memory, MiB: after a warm-up, after the requests, and after the models."""

    warm_mib: float
    after_half_mib: float
    after_requests_mib: float
    after_models_mib: float


@dataclass(frozen=True, slots=True)
class Result:
    """All that was measured. ``left_out`` says why a rival is not in it."""

    samples: Samples
    targets: tuple[str, ...]
    left_out: tuple[str, ...]
    memory: Memory


async def measure(plan: Plan, rivals: Rivals, tell: Tell) -> Result:
    """Measure what ``plan`` says. Raises CommandError where the gateway or what it needs cannot run."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gravity-bench-")))
        leash = stack.enter_context(Leash())

        async def start(command: Command) -> Child:
            child = await Child.start(command, leash, keep_quiet)
            stack.push_async_callback(child.stop, GRACE_S)
            return child

        valkey_port = free_port()
        store = await start(valkey_command(valkey_port))
        await wait_for_ping(valkey_url(valkey_port), READY_S, store)
        upstream = await start(_upstream_command())
        upstream_url = str((await upstream.wait_ready(READY_S))["url"])
        around = Surroundings(upstream_url, valkey_url(valkey_port), folder)
        targets, left_out = _targets(rivals, around)
        running = [Running(DIRECT, urlsplit(upstream_url).port or 0, upstream, None)]
        for target in targets:
            tell(f"starting {target.name}")
            child = await start(target.command)
            try:
                await _answers(target, child)
            except StackError as error:
                if target.name == GATEWAY:
                    raise
                left_out.append(str(error))
                continue
            running.append(Running(target.name, target.port, child, Usage(child.pid, target.name)))
        loader = await stack.enter_async_context(loading())
        samples = await _rounds(plan, running, loader, tell)
        ours = next(each for each in running if each.name == GATEWAY)
        memory = await _memory(plan, ours, loader, tell)
    return Result(samples, tuple(each.name for each in running), tuple(left_out), memory)


async def _rounds(plan: Plan, running: Sequence[Running], loader: Loader, tell: Tell) -> Samples:
    """Every target in every cell, in every round; each round begins with another target."""
    samples: Samples = defaultdict(list)
    for target in running:
        await target.carry_out(Run(target.port, 4, KIB, WARM_UP_S), loader, "warm-up")
    ends_at = time.monotonic() + plan.begin_within_s
    for number in range(plan.num_rounds):
        if number >= LEAST_ROUNDS and time.monotonic() > ends_at:
            break
        tell(f"round {number + 1} of {plan.num_rounds}")
        first = number % len(running)
        for cell in plan.cells:
            for target in (*running[first:], *running[:first]):
                with alone(target, running):
                    samples[target.name, cell.name].append(await _sample(target, cell, plan, loader))
    return dict(samples)


async def _sample(target: Running, cell: Cell, plan: Plan, loader: Loader) -> Sample:
    run = Run(target.port, cell.num_connections, cell.num_bytes, plan.duration_s, num_chunks=cell.num_chunks)
    before_s = target.usage.cpu_s() if target.usage else 0.0
    measured = await target.carry_out(run, loader, cell.name)
    after_s = await target.usage.settled_cpu_s() if target.usage else 0.0
    return sample_of(measured, after_s - before_s)


async def _memory(plan: Plan, ours: Running, loader: Loader, tell: Tell) -> Memory:
    assert ours.usage is not None
    half, num_models = plan.num_requests_for_memory // 2, plan.num_models_for_memory
    requests = Run(ours.port, CONNECTIONS_FOR_MEMORY, KIB, LONG_S, half)
    models = replace(requests, max_requests=num_models, num_models=num_models)
    told = [ours.usage.rss_mib()]
    for phase, run in (
        (f"memory, first {half} requests", requests),
        (f"memory, next {half} requests", requests),
        (f"memory, {num_models} made-up models", models),
    ):
        tell(phase)
        measured = await ours.carry_out(run, loader, phase)
        require_all(measured, run, f"{ours.name}, {phase}")
        await ours.usage.settled_cpu_s()
        told.append(ours.usage.rss_mib())
    return Memory(*told)


def require_all(measured: Measured, run: Run, what: str) -> None:
    """Raise CommandError where fewer requests were answered than memory is judged by."""
    num_answered = len(measured.latencies_ms)
    if num_answered < run.max_requests:
        took = f"{num_answered} of {run.max_requests} requests answered in {measured.elapsed_s:.0f} s"
        raise CommandError(f"{what}: {took}, {measured.num_failed} failed")


def _targets(rivals: Rivals, around: Surroundings) -> tuple[list[Target], list[str]]:
    targets = [gateway_target(around)]
    left_out: list[str] = []
    for name, given, make in (
        (LITELLM, rivals.litellm, litellm_target),
        (VLLM_ROUTER, rivals.vllm_router, vllm_router_target),
    ):
        python = find_python(name, given)
        if python is None:
            left_out.append(
                f"{name} is not installed: gravity bench gateway --install, or --{name}-python PATH"
            )
        else:
            targets.append(make(python, around))
    return targets, left_out


def _upstream_command() -> Command:
    return Command("upstream", (sys.executable, "-m", "gateway.bench.upstream", str(free_port())))


async def _answers(target: Target, child: Child) -> None:
    """Return once a request comes through. Raises StackError where none does."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + READY_S
    body = {"model": MODEL, "messages": [{"role": "user", "content": "Are you there?"}]}
    reason = ""
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{target.port}", timeout=10.0) as client:
        while loop.time() < deadline:
            try:
                answer = await client.post("/v1/chat/completions", json=body)
            except httpx.TransportError as error:
                reason = str(error)
            else:
                if answer.status_code == httpx.codes.OK:
                    return
                reason = answer.text[:500]
            if child.has_ended:
                reason = "it ended"
                break
            await asyncio.sleep(POLL_S)
    raise StackError(f"{target.name} does not serve ({reason}):\n{child.last_output[-2000:]}")
