"""Whether everything that was asked for has ended, and nothing is held for it any more."""

from __future__ import annotations

import asyncio
from time import monotonic

import httpx

from gateway.chaos.memory import num_connections
from gateway.chaos.site import Site, metrics_of, url_of

SETTLE_S = 90.0
POLL_S = 0.2
PROBES = 4
"""Connections that the gateways may keep to a worker at rest."""
LEVELS = (
    "requests_running",
    "requests_waiting",
    "kv_tokens_used",
    "prefix_blocks_held",
    "trace_steps_queued",
    "trace_spill_bytes",
)
"""Of a worker: 0 at rest."""


async def settled(site: Site) -> list[str]:
    """Wait until nothing is open; return what still is when the time is over."""
    deadline = monotonic() + SETTLE_S
    while True:
        async with httpx.AsyncClient(timeout=10.0) as client:
            try:
                reason = await _reason(site, client)
            except httpx.TransportError as error:
                reason = f"no answer: {error!r}"
        reason = reason or _connections(site)
        if not reason:
            return []
        if monotonic() > deadline:
            return [f"not at rest after {SETTLE_S:.0f} s: {reason}"]
        await asyncio.sleep(POLL_S)


def _connections(site: Site) -> str:
    for place in site.gateways:
        if num := num_connections(place.port):
            return f"{num} connections to {place.name} are open"
    for place in site.workers:
        if (num := num_connections(place.port)) > PROBES:
            return f"{num} connections to {place.name} are open"
    return ""


async def _reason(site: Site, client: httpx.AsyncClient) -> str:
    """Return why the site is not at rest yet; empty where nothing is open anywhere."""
    for gateway in site.gateways:
        health = (await client.get(url_of(gateway) + "/health")).json()
        if health["status"] != "ok":
            return f"{gateway.name} is {health['status']}: {health['reasons'] or health['redis']}"
        if health["open_turns"] or any(worker["num_in_flight"] for worker in health["workers"]):
            return f"{gateway.name} has open turns: {health['open_turns']}"
        if not all(worker["is_ready"] for worker in health["workers"]):
            return f"{gateway.name} does not use every worker"
        if health["records"]["waiting"]:
            return f"{gateway.name} has records to write"
    for worker in site.workers:
        figures = await metrics_of(client, worker)
        for name in LEVELS:
            if figures[f"ng_worker_{name}"]:
                return f"{worker.name} has {name} = {figures[f'ng_worker_{name}']:.0f}"
    return ""
