"""Shadow turns: for a share of the other arms' turns the control answers too, once the client has its answer.

Nobody waits for a shadow, and it stands in nobody's way as far as this gateway can see: it is begun only
where a worker is idle, a few at a time, and it ends when the gateway begins to drain. What is not begun is
counted. A shadow is a turn of its own, with its own record; both answers are kept, linked by ``shadow_of``.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from gateway.errors import RequestError
from gateway.flow.assign import lane_of, position, requested_task
from gateway.flow.turn import Turn
from gateway.store.document import ExperimentDocument

if TYPE_CHECKING:
    from gateway.flow.deps import Deps
    from gateway.flow.pipeline import Serve

DRAW_SEED = "shadow"
LeftOut: TypeAlias = Literal["limit", "busy", "draining", "changed", "shed"]

logger = logging.getLogger(__name__)


class Shadows:
    """The shadow turns that run now."""

    def __init__(self, serve: Serve, max_running: int) -> None:
        self._serve = serve
        self._max_running = max_running
        self._running: set[asyncio.Task[None]] = set()

    @property
    def num_running(self) -> int:
        return len(self._running)

    def follow(self, turn: Turn, deps: Deps) -> None:
        """Begin the shadow of a turn whose client has its whole answer, where one is drawn for it."""
        experiment = _experiment_of(turn, deps)
        if experiment is None or not is_drawn(turn, experiment):
            return
        reason = self._why_not(turn, deps)
        if reason is not None:
            deps.metrics.shadows_left_out.labels(reason).inc()
            return
        shadow = shadow_of(turn, experiment, deps)
        task = asyncio.create_task(self._run(shadow, deps), name=f"shadow {turn.id}")
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        deps.drain.ends_at_begin(task)

    async def close(self) -> None:
        """End those that run."""
        running = tuple(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _why_not(self, turn: Turn, deps: Deps) -> LeftOut | None:
        if deps.drain.is_draining:
            return "draining"
        if "shadow" in deps.shedding.steps:
            deps.shedding.count("shadow")
            return "shed"
        if deps.config.snapshot.sha != turn.config_sha:
            return "changed"
        if len(self._running) >= self._max_running:
            return "limit"
        return None if deps.pool.has_idle_worker(turn.model) else "busy"

    async def _run(self, shadow: Turn, deps: Deps) -> None:
        try:
            await self._serve(shadow, deps, _to_nobody)
        except RequestError:
            return  # its record says so
        except Exception:
            logger.exception("shadow_failed")


def is_drawn(turn: Turn, experiment: ExperimentDocument) -> bool:
    """Whether the control is to answer this turn as well."""
    assignment = turn.assignment
    is_other_arm = assignment.reason == "split" and assignment.lane != experiment.control.name
    return is_other_arm and position(DRAW_SEED, turn.id) < experiment.shadow_share


def shadow_of(turn: Turn, experiment: ExperimentDocument, deps: Deps) -> Turn:
    """Return the same request under the control, as it arrived."""
    snapshot = deps.config.snapshot
    control = experiment.control
    task = requested_task(turn.requested_task, snapshot.tasks)
    unit, is_sticky = turn.assignment.unit or turn.id, turn.assignment.is_sticky
    return Turn(
        id=deps.new_id(),
        received_at=deps.clock(),
        endpoint=turn.endpoint,
        body=turn.body,
        model=turn.model,
        is_streaming=turn.is_streaming,
        wants_usage=turn.wants_usage,
        user=turn.user,
        headers=turn.headers,
        documents=turn.documents,
        requested_task=turn.requested_task,
        gravity_override=turn.gravity_override,
        question=turn.question,
        history=turn.history,
        shadow_of=turn.id,
        assignment=replace(lane_of(control, experiment, "shadow"), unit=unit, is_sticky=is_sticky),
        task=snapshot.tasks.get(control.task or "", task),
        config_sha=snapshot.sha,
    )


def _experiment_of(turn: Turn, deps: Deps) -> ExperimentDocument | None:
    assignment = turn.assignment
    for experiment in deps.config.snapshot.experiments:
        if (experiment.id, experiment.version) == (assignment.experiment, assignment.experiment_version):
            return experiment
    return None


async def _to_nobody(data: bytes) -> None:
    """Nobody reads a shadow's answer but the record."""
