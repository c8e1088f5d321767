"""The workers: who they are, who is ready, and which of them gets the next request."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from gateway.errors import ModelNotFound, NoWorkers, RequestError
from gateway.pool.breaker import Breaker
from gateway.pool.client import Timeouts, WorkerClient
from gateway.pool.tokens import TokenCounter, TokenCounts
from gateway.pool.worker import NOTHING, Worker
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


class Pool:
    """Filter, score, pick. Probes change what a worker is, never how busy it is counted."""

    def __init__(self, workers: Sequence[Worker], *, probe_interval_s: float, probe_timeout_s: float) -> None:
        self.workers = tuple(workers)
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
        workers = [
            Worker(
                WorkerClient(url, timeouts, key),
                Breaker(settings.breaker_failures, settings.breaker_cooldown_s, clock),
                environment,
            )
            for url in settings.workers
        ]
        return cls(
            workers, probe_interval_s=settings.probe_interval_s, probe_timeout_s=settings.probe_timeout_s
        )

    async def close(self) -> None:
        for worker in self.workers:
            await worker.client.close()

    def pick(self, model: str, bucket: int, tried: Collection[Worker] = ()) -> Worker:
        """Return the ready worker with the least cost; of equals, the one that served least.

        Raises ModelNotFound where every worker is known and none has the model, NoWorkers where none of
        those that may have it is ready (llm-d-router#1735: 503, not 429).
        """
        able = [worker for worker in self.workers if model in worker.models]
        if not able and self.workers and all(worker.is_known for worker in self.workers):
            raise ModelNotFound(f"No worker serves the model {model[:200]!r}.", param="model")
        ready = [worker for worker in able if worker.is_ready and worker not in tried]
        if not ready:
            raise NoWorkers(retry_after_s=max(1.0, self._probe_interval_s))
        return min(ready, key=lambda worker: (worker.cost(bucket), worker.num_served))

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
                reason=worker.reason or ("" if worker.breaker.allows else "taken out after failures"),
                breaker=worker.breaker.state,
                models=tuple(worker.models),
                num_in_flight=worker.num_in_flight,
            )
            for worker in self.workers
        )

    async def watch(self) -> None:
        """Probe every worker at the interval, each on its own, until cancelled."""
        async with asyncio.TaskGroup() as probes:
            for worker in self.workers:
                probes.create_task(self._watch(worker), name=f"probe {worker.name}")

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
