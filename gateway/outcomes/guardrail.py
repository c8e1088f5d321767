"""The watch over guardrails: what an experiment must not make worse ends it, and may undo it.

One of the gateways looks, once an interval. A guardrail is about harm, so it is heeded even where the arms'
sizes do not fit their shares and the verdict is hidden; the reason says so then.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Literal, TypeAlias

from redis.asyncio import Redis
from redis.exceptions import RedisError

from gateway.errors import ConfigError, PublishConflict
from gateway.lab.analysis import ExperimentReport, GuardrailState, analyse
from gateway.lab.metrics import FEEDBACK_PREFIX, METRICS
from gateway.lab.observations import Observations
from gateway.outcomes.ledger import Experiment
from gateway.outcomes.read import read_observations
from gateway.outcomes.rollback import active_in, before_first_active, restored, stopped, tasks_of
from gateway.settings import GatewaySettings
from gateway.store.centre import ConfigCentre, Note, Version
from gateway.store.document import ExperimentDocument
from gateway.store.documents import Documents
from gateway.store.keys import ConfigKeys
from gateway.store.snapshot import Snapshot
from gateway.telemetry.logs import log
from gateway.telemetry.metrics import Metrics, closed

NUM_ATTEMPTS = 2
"""Somebody else may publish at the same moment, once."""
WHO = "guardrail"

Action: TypeAlias = Literal["report", "stop", "roll_back"]
Broken: TypeAlias = tuple[str, int, str, str]
"""Experiment, version, metric, arm."""
ACTIONS: tuple[Action, ...] = ("report", "stop", "roll_back")
"""The later the stronger."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WatchParts:
    """What the watch works with."""

    redis: Redis
    open_redis: Callable[[], Redis]
    """Makes another client, for a thread."""
    centre: ConfigCentre
    snapshot: Callable[[], Snapshot]
    """What is in force here."""
    metrics: Metrics


def lock_key(settings: GatewaySettings) -> str:
    """Return the key that the gateways share which have one configuration: a namespace, or a folder."""
    if settings.config_store == "redis":
        return ConfigKeys(settings.config_namespace).guardrails
    folder = f"{socket.gethostname()}:{settings.config_dir.resolve()}"
    return f"ng:guardrails:{blake2b(folder.encode(), digest_size=8).hexdigest()}"


class GuardrailWatch:
    """Looks at the guardrails of the active experiments, in turns with the other gateways."""

    def __init__(self, parts: WatchParts, lock_key: str, gateway_id: str, interval_s: float) -> None:
        """``lock_key`` is shared by the gateways that have one configuration."""
        self._parts = parts
        self._lock_key = lock_key
        self._gateway_id = gateway_id
        self._interval_s = interval_s
        self._told: set[Broken] = set()

    async def watch(self) -> None:
        """Look at the interval, until cancelled."""
        while True:
            await asyncio.sleep(self._interval_s)
            try:
                if await self._is_my_turn():
                    await self.look()
            except (RedisError, OSError) as error:
                log(logger, logging.WARNING, "guardrails_not_looked_at", reason=str(error))

    async def look(self) -> None:
        """Analyse every active experiment that has guardrails, and act. Raises RedisError or OSError."""
        active = [e for e in self._parts.snapshot().experiments if e.is_active and e.guardrails]
        self._told = {each for each in self._told if each[:2] in {(e.id, e.version) for e in active}}
        for document in active:
            report = await asyncio.to_thread(self._analysed, document)
            broken = [state for state in report.guardrails if state.is_broken]
            if broken:
                self._tell(document, broken)
                await self._act(document, broken, report)

    def _analysed(self, document: ExperimentDocument) -> ExperimentReport:
        """Read and analyse in the calling thread: of a full stream that is seconds of work."""

        async def read() -> Observations:
            async with self._parts.open_redis() as redis:
                return await read_observations(redis, document.id, document.version)

        return analyse(document, asyncio.run(read()))

    async def _is_my_turn(self) -> bool:
        """Take the interval's look, where no other gateway has."""
        lifetime_ms = max(1, int(self._interval_s * 1e3))
        return bool(await self._parts.redis.set(self._lock_key, self._gateway_id, nx=True, px=lifetime_ms))

    def _tell(self, document: ExperimentDocument, broken: Sequence[GuardrailState]) -> None:
        """Log and count each of them once."""
        for state in broken:
            key = document.id, document.version, state.guardrail.metric, state.arm
            if key in self._told:
                continue
            self._told.add(key)
            metric, action = metric_label(state.guardrail.metric), state.guardrail.action
            self._parts.metrics.guardrails_broken.labels(metric, action).inc()
            fields: dict[str, Any] = {"experiment": document.id, "version": document.version}
            log(logger, logging.WARNING, "guardrail_broken", reason=state.sentence, action=action, **fields)

    async def _act(
        self, document: ExperimentDocument, broken: Sequence[GuardrailState], report: ExperimentReport
    ) -> None:
        action = max((state.guardrail.action for state in broken), key=ACTIONS.index)
        if action == "report":
            return
        why = reason(document, broken, report)
        try:
            is_done = await asyncio.to_thread(end, self._parts.centre, document, action, why)
        except ConfigError as error:
            self._parts.metrics.guardrail_actions.labels(action, "failed").inc()
            log(logger, logging.ERROR, "guardrail_failed", experiment=document.id, reason=error.message)
            return
        if is_done:
            self._parts.metrics.guardrail_actions.labels(action, "done").inc()
            fields: dict[str, Any] = {"experiment": document.id, "action": action, "reason": why}
            log(logger, logging.WARNING, "guardrail_acted", **fields)


def reason(document: ExperimentDocument, broken: Sequence[GuardrailState], report: ExperimentReport) -> str:
    """Return what the history says: which guardrails broke, of those that do more than report."""
    sentences = [state.sentence for state in broken if state.guardrail.action != "report"]
    why = f"{document.id}, version {document.version}: {'; '.join(sentences)}"
    if report.sample_ratio.is_alarm:
        why += "; the arms' sizes do not fit their shares either, so units are lost somewhere"
    return why


def end(centre: ConfigCentre, document: ExperimentDocument, action: Action, why: str) -> bool:
    """Publish the experiment's end. Returns whether it was still active there. Blocks. Raises ConfigError."""
    experiment = Experiment(document.id, document.version)
    for attempt in range(NUM_ATTEMPTS):
        head = centre.head()
        there = active_in(head.documents, experiment)
        if there is None:
            return False
        try:
            _publish(centre, head, there, action, why)
        except PublishConflict:
            if attempt + 1 == NUM_ATTEMPTS:
                raise
        else:
            return True
    return False


def _publish(
    centre: ConfigCentre, head: Version, document: ExperimentDocument, action: Action, why: str
) -> None:
    off = stopped(head.documents, document.id)
    if action == "roll_back" and (names := ", ".join(tasks_of(document))):
        before = before_first_active(centre, Experiment(document.id, document.version))
        if before is None:
            why += f"; what was in force before it is not known, so {names} stay as they are"
        else:
            told = f"{why}; {names} are again what they were in {before.sha[:12]}"
            try:
                _write(centre, restored(off, before.documents, document), told, head)
            except PublishConflict:
                raise
            except ConfigError as error:  # that it ends is what matters most
                why += f"; {names} stay as they are, as what they were does not serve: {error.message}"
            else:
                return
    _write(centre, off, why, head)


def _write(centre: ConfigCentre, documents: Documents, why: str, head: Version) -> None:
    centre.publish(documents, Note(who=WHO, why=why, kind="guardrail", is_forced=True), expected_sha=head.sha)


def metric_label(metric: str) -> str:
    """Return the metric as a label of a closed set: all that clients report counts as ``feedback``."""
    return "feedback" if metric.startswith(FEEDBACK_PREFIX) else closed(metric, METRICS)
