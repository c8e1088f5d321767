"""The search for a worker that begins to answer: one after the other, and two at once where one is silent."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from gateway.errors import (
    NoWorkers,
    QueueFull,
    RequestError,
    UpstreamError,
    UpstreamTimeout,
    WorkerUnreachable,
)
from gateway.flow.attempt import Attempt, Begin, Place
from gateway.flow.blame import forget_what_is_no_field
from gateway.flow.hedge import Race, Winner
from gateway.flow.line import Wanted
from gateway.flow.prompt import affinity_text, prompt_chars
from gateway.flow.tally import Tally
from gateway.flow.turn import Turn
from gateway.pool.affinity import key_of
from gateway.pool.registry import RequestSize
from gateway.pool.suiting import pool_of
from gateway.pool.worker import Worker
from gateway.telemetry.logs import log

if TYPE_CHECKING:
    from gateway.flow.deps import Deps

RETRY_AFTER_S = 1.0
BodyFor: TypeAlias = Callable[[Turn, Worker], dict[str, Any]]

logger = logging.getLogger(__name__)


class Search:
    """One turn's. ``tried`` are the workers that it was sent to; none gets it twice."""

    def __init__(self, turn: Turn, deps: Deps, tally: Tally, body_for: BodyFor) -> None:
        self._turn = turn
        self._deps = deps
        self._tally = tally
        self._body_for = body_for
        self._tried: list[Worker] = []
        self._since_s = deps.monotonic()
        # With one worker there is nothing to choose and nothing to race.
        has_choice = len(deps.pool.workers) > 1
        num_chars = prompt_chars(turn.upstream_body) if has_choice else 0
        self._size = RequestSize(turn.model, turn.is_streaming, num_chars)
        self._affinity = _affinity(turn, deps) if has_choice else None

    async def find(self, begin: Begin) -> Winner:
        """Raises ModelNotFound, NoWorkers, QueueFull, UpstreamError, UpstreamTimeout, UpstreamRejected."""
        failure: RequestError | None = None
        while len(self._tried) < self._deps.settings.max_attempts:
            try:
                place = await self._place()
            except (NoWorkers, QueueFull) as error:
                failure = failure or error
                break
            attempt = self._attempt(place)
            if len(self._tried) > 1:
                self._deps.metrics.retries.inc()
            try:
                return await self._begun(attempt, begin)
            except RequestError as error:
                self._log_refusal(attempt.worker, error)
                forget_what_is_no_field(error, attempt.turn)
                if not is_worth_retrying(error):
                    raise
                # A full queue is worth telling: the client may simply come back.
                failure = failure if isinstance(failure, QueueFull) else error
        if failure is None or isinstance(failure, WorkerUnreachable):
            raise NoWorkers(retry_after_s=RETRY_AFTER_S) from failure
        raise failure

    async def _begun(self, attempt: Attempt, begin: Begin) -> Winner:
        pool = self._deps.pool
        pool.hedges.earn()
        patience_s = pool.patience_s(attempt.worker, self._size, self._tried)
        winner = await Race(begin, self._another, self._deps).first_to_begin(attempt, patience_s)
        self._tally.worker = winner[0].worker.name
        return winner

    def _another(self) -> Attempt | None:
        if len(self._tried) >= self._deps.settings.max_attempts:
            return None
        try:
            return self._attempt(self._deps.admission.take(self._wanted()))
        except RequestError:  # meanwhile no other is ready, has the model, or has room
            return None

    async def _place(self) -> Place:
        """Take a place at the best worker that was not tried. A shadow does not wait for one."""
        admission = self._deps.admission
        return (
            admission.take(self._wanted()) if self._turn.shadow_of else await admission.place(self._wanted())
        )

    def _wanted(self) -> Wanted:
        turn = self._turn
        return Wanted(
            model=turn.model,
            bucket=turn.bucket,
            priority=turn.priority,
            since_s=self._since_s,
            affinity=self._affinity,
            tried=frozenset(self._tried),
        )

    def _attempt(self, place: Place) -> Attempt:
        turn, deps, worker = self._turn, self._deps, place.worker
        self._tried.append(worker)
        self._tally.worker, self._tally.num_attempts = worker.name, len(self._tried)
        sent = turn.grown(
            worker=worker.name,
            bucket_pool=pool_of(worker, turn.bucket),
            num_attempts=len(self._tried),
            environment=worker.environment,
            upstream_body=self._body_for(turn, worker),
        )
        return Attempt(sent, place, self._size, deps.monotonic)

    def _log_refusal(self, worker: Worker, error: RequestError) -> None:
        turn = self._turn.id
        log(logger, logging.WARNING, "worker_refused", worker=worker.name, code=error.code, turn=turn)


def _affinity(turn: Turn, deps: Deps) -> int | None:
    num_chars = deps.settings.affinity_chars
    text = affinity_text(turn, num_chars) if num_chars else None
    return None if text is None else key_of(turn.model, text)


def is_worth_retrying(error: RequestError) -> bool:
    """Whether another worker may do better."""
    return isinstance(error, UpstreamError | UpstreamTimeout | NoWorkers | QueueFull)
