"""The workers: who they are, who is ready, and which of them gets the next request."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from gateway.errors import ModelNotFound, NoWorkers, QueueFull, RequestError
from gateway.pool.affinity import discounted, preferred
from gateway.pool.breaker import Breaker
from gateway.pool.client import WorkerClient
from gateway.pool.patience import HedgeBudget, PatienceSettings, patience_s
from gateway.pool.reply import Timeouts
from gateway.pool.roster import Registration
from gateway.pool.suiting import suited
from gateway.pool.tokens import TokenCounter, TokenCounts
from gateway.pool.worker import NOTHING, Worker, nobody
from gateway.settings import GatewaySettings
from gateway.telemetry.logs import log

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """What people are shown of a worker."""

    name: str
    level: str
    is_ready: bool
    reason: str
    breaker: str
    models: tuple[str, ...]
    num_in_flight: int
    is_draining: bool
    is_registered: bool
    """At run time, not by NG_WORKERS."""
    buckets: tuple[int, ...]
    """What it is for; none are all."""


@dataclass(frozen=True, slots=True)
class RequestSize:
    """What a request's time to its beginning depends on."""

    model: str
    is_streaming: bool
    num_chars: int


class Pool:
    """Filter, score, pick. Probes change what a worker is, never how busy it is counted.

    ``urls`` are the workers that are always there; ``follow`` adds the registered ones and takes them out.
    """

    def __init__(
        self,
        urls: Collection[str],
        make: Callable[[str], Worker],
        patience: PatienceSettings,
        *,
        probe_interval_s: float,
        probe_timeout_s: float,
    ) -> None:
        self._make = make
        self._patience = patience
        self.hedges = HedgeBudget()
        self.is_bounded = False
        """Whether its workers can be full."""
        self.on_end: Callable[[], None] = nobody
        """Called when a request has ended."""
        self.on_change: Callable[[], None] = nobody
        """Called when a worker may have become ready, or ceased to be."""
        self._settled = frozenset(urls)
        self._leaving: tuple[Worker, ...] = ()
        self._has_changed = asyncio.Event()
        self.workers: tuple[Worker, ...] = tuple(self._made(url) for url in urls)
        self._probe_interval_s = probe_interval_s
        self._probe_timeout_s = probe_timeout_s
        self._tokens = TokenCounts()

    @classmethod
    def open(
        cls,
        settings: GatewaySettings,
        clock: Callable[[], float],
        environment: Mapping[str, Any] = NOTHING,
    ) -> Pool:
        """Make a session to each worker of the settings. To be called inside the running loop.

        ``environment`` is the gateway's own part of what a turn's record says it ran on.
        """
        timeouts = Timeouts(
            connect_s=settings.connect_timeout_s,
            first_token_s=settings.first_token_timeout_s,
            idle_s=settings.idle_timeout_s,
            whole_s=settings.request_timeout_s,
        )
        key = settings.worker_api_key.get_secret_value() if settings.worker_api_key else None

        def make(url: str) -> Worker:
            breaker = Breaker(settings.breaker_failures, settings.breaker_cooldown_s, clock)
            client = WorkerClient(url, timeouts, key, settings.allowed_networks)
            worker = Worker(client, breaker, environment, settings.worker_buckets.get(url, ()))
            worker.concurrency = settings.worker_concurrency
            return worker

        pool = cls(
            settings.workers,
            make,
            PatienceSettings(
                settings.patience_factor,
                settings.patience_floor_s,
                min(settings.patience_ceiling_s, settings.first_token_timeout_s),
            ),
            probe_interval_s=settings.probe_interval_s,
            probe_timeout_s=settings.probe_timeout_s,
        )
        pool.is_bounded = settings.worker_concurrency > 0
        return pool

    async def close(self) -> None:
        for worker in (*self.workers, *self._leaving):
            await worker.client.close()

    def follow(self, registrations: Collection[Registration]) -> None:
        """Make the pool the workers of the settings and these. One that goes finishes its open turns."""
        wanted = {entry.url: entry for entry in registrations}
        known = {worker.name: worker for worker in self.workers}
        gone = [w for name, w in known.items() if name not in self._settled and name not in wanted]
        added = [url for url in wanted if url not in known]
        for worker in self.workers:
            worker.follow(wanted.get(worker.name))
        if not gone and not added:
            self.on_change()
            return
        stay = [worker for worker in self.workers if worker not in gone]
        # One that comes back before its open turns have ended keeps its counters.
        leaving = {worker.name: worker for worker in self._leaving}
        made = [leaving.get(url) or self._made(url) for url in added]
        for worker in made:
            worker.follow(wanted[worker.name])
        for worker in gone:
            worker.is_draining = True
        self.workers = (*stay, *made)
        self._leaving = (*(worker for worker in self._leaving if worker not in made), *gone)
        self._has_changed.set()
        left = [worker.name for worker in gone]
        log(logger, logging.INFO, "workers_changed", added=added, gone=left)
        self.on_change()

    def _made(self, url: str) -> Worker:
        worker = self._make(url)
        worker.on_end = self._ended
        return worker

    def _ended(self) -> None:
        if self._leaving:
            self._has_changed.set()
        self.on_end()

    def is_settled(self, url: str) -> bool:
        """Whether NG_WORKERS names it."""
        return url in self._settled

    def pick(
        self, model: str, bucket: int, tried: Collection[Worker] = (), affinity: int | None = None
    ) -> Worker:
        """Return the ready worker with the least cost; of equals, the one that served least.

        Workers for its bucket come first, those for others after them (see suiting.py). Where prompts like
        this one have been (``affinity``, see affinity.py) it costs less; no busy worker is taken for it while
        another of those is idle.

        Raises QueueFull where those that are ready are full; ModelNotFound where every worker is known and
        none has the model; NoWorkers where none of those that may have it is ready (llm-d-router#1735: 503,
        not 429).
        """
        able = [worker for worker in self.workers if model in worker.models]
        if not able and self.workers and all(worker.is_known for worker in self.workers):
            raise ModelNotFound(f"No worker serves the model {model[:200]!r}.", param="model")
        ready = [worker for worker in able if worker.is_ready and worker not in tried]
        if not ready:
            raise NoWorkers(retry_after_s=max(1.0, self._probe_interval_s))
        ready = [worker for worker in ready if worker.has_room]
        if not ready:
            raise QueueFull
        best = suited(ready, bucket)
        if len(best) == 1:
            return best[0]
        warm = None if affinity is None else preferred(best, affinity)
        if warm is not None and warm.num_in_flight == 0:
            return warm

        def cost(worker: Worker) -> tuple[float, int]:
            plain = worker.cost(bucket)
            return discounted(plain) if worker is warm else plain, worker.num_served

        return min(best, key=cost)

    def patience_s(self, worker: Worker, request: RequestSize, tried: Collection[Worker]) -> float | None:
        """Return how long ``worker`` may stay silent before another is asked as well.

        None, for as long as it likes, where no other is ready. What is usual of whole answers says nothing
        before some are known; a stream's first token gets the ceiling until then.
        """
        model, is_streaming = request.model, request.is_streaming
        others = [
            other
            for other in self.workers
            if other is not worker and model in other.models and other.is_ready and other not in tried
        ]
        if not others:
            return None
        own = worker.begin_times(model, is_streaming=is_streaming)
        theirs = (other.begin_times(model, is_streaming=is_streaming) for other in others)
        known_s = patience_s(self._patience, own, theirs, request.num_chars)
        if known_s is None and is_streaming and self._patience.factor:
            return self._patience.ceiling_s
        return known_s

    def token_counter(self, model: str) -> TokenCounter:
        """Return the counter of tokens as ``model`` counts them; an estimate where no ready worker can."""
        able = [worker for worker in self.workers if model in worker.models and worker.is_reachable]
        native = (worker for worker in able if worker.level == "native")
        return partial(self._tokens.count, next(native, None), model)

    @property
    def models(self) -> Mapping[str, int | None]:
        """Ids of all models ever told, with their context lengths."""
        return {model: length for worker in self.workers for model, length in worker.models.items()}

    @property
    def has_ready_worker(self) -> bool:
        return any(worker.is_ready for worker in self.workers)

    def has_idle_worker(self, model: str) -> bool:
        """Whether a ready worker with the model has no request of this gateway."""
        able = (worker for worker in self.workers if model in worker.models and worker.is_ready)
        return any(worker.num_in_flight == 0 for worker in able)

    def status(self) -> tuple[WorkerStatus, ...]:
        return tuple(
            WorkerStatus(
                name=worker.name,
                level=worker.level,
                is_ready=worker.is_ready,
                reason=_why_out(worker),
                breaker=worker.breaker.state,
                models=tuple(worker.models),
                num_in_flight=worker.num_in_flight,
                is_draining=worker.is_draining,
                is_registered=worker.name not in self._settled,
                buckets=tuple(sorted(worker.buckets)),
            )
            for worker in self.workers
        )

    async def watch(self) -> None:
        """Probe every worker at the interval, each on its own, until cancelled."""
        probes: dict[Worker, asyncio.Task[None]] = {}
        async with asyncio.TaskGroup() as group:
            while True:
                self._has_changed.clear()
                for worker in set(self.workers) - probes.keys():
                    probes[worker] = group.create_task(self._watch(worker), name=f"probe {worker.name}")
                for worker in probes.keys() - set(self.workers):
                    probes.pop(worker).cancel()
                await self._close_left()
                await self._has_changed.wait()

    async def _close_left(self) -> None:
        """Close the sessions to those that have gone and have no open turn any more."""
        idle = [worker for worker in self._leaving if worker.num_in_flight == 0]
        self._leaving = tuple(worker for worker in self._leaving if worker not in idle)
        for worker in idle:
            await worker.client.close()

    async def _watch(self, worker: Worker) -> None:
        while True:
            await self.probe(worker)
            # Often while it is away: a worker that starts is wanted at once.
            await asyncio.sleep(self._probe_interval_s * (1.0 if worker.is_reachable else 0.25))

    async def probe(self, worker: Worker) -> None:
        """Ask one worker what it is and whether it is ready."""
        was_reachable = worker.is_reachable
        try:
            worker.answered(await worker.client.capabilities(timeout_s=self._probe_timeout_s))
        except RequestError as error:
            worker.failed_probe(error)
        if worker.is_reachable != was_reachable:
            event = "worker_ready" if worker.is_reachable else "worker_out"
            log(logger, logging.INFO, event, worker=worker.name, reason=worker.reason)
            self.on_change()


def _why_out(worker: Worker) -> str:
    if worker.reason:
        return worker.reason
    if worker.is_draining:
        return "draining"
    return "" if worker.breaker.allows else "taken out after failures"
