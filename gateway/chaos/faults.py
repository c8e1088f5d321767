"""What is done to the processes, one thing at a time, and undone."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import TypeAlias

import httpx

from gateway.chaos.place import Place
from gateway.chaos.site import PING_S, Site, metrics_of
from gateway.stack.valkey import wait_for_ping

Fault: TypeAlias = Callable[[], Awaitable[None]]

SHORT_S = (1.0, 4.0)
LONG_S = (8.0, 10.0)
"""Long enough for the small disk to be full."""
REST_S = (1.0, 4.0)


@dataclass(slots=True)
class Faults:
    """Does to ``site`` what ``draw`` says; ``log`` is what was done."""

    site: Site
    draw: random.Random
    tell: Callable[[str], None]
    log: list[str] = field(default_factory=list)
    num_lost_before: float = 0.0
    """Steps that workers had counted as lost when they were killed."""

    async def run_until(self, end_s: float) -> None:
        """Go through all kinds in a random order, again and again, until the monotonic clock says so.

        In the second half the first worker and the first gateway live on, so that memory can be judged.
        """
        half_s = (monotonic() + end_s) / 2
        while monotonic() < end_s:
            kinds = self._kinds()
            for place, fault in self.draw.sample(kinds, len(kinds)):
                if monotonic() >= end_s:
                    return
                if place in self._spared and monotonic() >= half_s:
                    continue
                await asyncio.sleep(self.draw.uniform(*REST_S))
                await fault()

    @property
    def _spared(self) -> tuple[Place, ...]:
        return (self.site.workers[0], self.site.gateways[0])

    def _kinds(self) -> list[tuple[Place | None, Fault]]:
        """Return what can be done, with the place where that ends a process."""
        return [
            *((None, partial(self._pause, place, SHORT_S)) for place in self.site.places),
            *((place, partial(self._kill, place)) for place in self.site.places),
            (None, partial(self._pause, self.site.valkey, LONG_S)),
        ]

    async def _pause(self, place: Place, limits_s: tuple[float, float]) -> None:
        seconds = self.draw.uniform(*limits_s)
        self._note(f"{place.name} paused for {seconds:.1f} s")
        place.pause()
        try:
            await asyncio.sleep(seconds)
        finally:
            place.go_on()

    async def _kill(self, place: Place) -> None:
        seconds = self.draw.uniform(*SHORT_S)
        self._note(f"{place.name} killed, away for {seconds:.1f} s")
        if place in self.site.workers and not place.has_died:
            self.num_lost_before += await lost_steps(place)
        await place.kill()
        await asyncio.sleep(seconds)
        await place.start()
        if place is self.site.valkey:
            await wait_for_ping(self.site.redis_url, PING_S, place.child)
        place.is_back()

    def _note(self, text: str) -> None:
        self.log.append(text)
        self.tell(text)


async def lost_steps(worker: Place) -> float:
    """Return what the worker has counted so far."""
    async with httpx.AsyncClient(timeout=10.0) as client:
        return (await metrics_of(client, worker))["ng_worker_trace_steps_lost_total"]
