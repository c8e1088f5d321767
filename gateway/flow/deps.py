"""What the stages of a turn work with. Composed once, in ``gateway/app.py``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from redis.asyncio import Redis

from gateway.context.pruner import Pruner
from gateway.flow.admission import Admission
from gateway.flow.bucket import TaskEntropies
from gateway.flow.drain import Drain
from gateway.flow.opaque import OpaqueServers
from gateway.flow.record import Recorder
from gateway.flow.shadow import Shadows
from gateway.flow.shedding import Shedding
from gateway.flow.step_log import StepLog
from gateway.keys.gate import Gate
from gateway.keys.limiter import Limiter
from gateway.outcomes.feedback import FeedbackBook
from gateway.outcomes.guardrail import GuardrailWatch
from gateway.outcomes.ledger import Ledger
from gateway.outcomes.relevance import AnswerMeasure
from gateway.pool.registry import Pool
from gateway.pool.roster import Roster
from gateway.settings import GatewaySettings
from gateway.store.centre import ConfigCentre
from gateway.store.connection import RedisWatch
from gateway.store.replicas import ReplicaBoard
from gateway.store.watch import ConfigStore
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.once import FieldNotes
from gateway.telemetry.spans import Tracing


@dataclass(frozen=True, slots=True)
class Deps:
    """Everything that a stage may use; nothing else is reached for."""

    settings: GatewaySettings
    config: ConfigStore
    """The configuration in force here."""
    centre: ConfigCentre
    """Where configurations are published. It blocks, so it belongs into a thread."""
    replicas: ReplicaBoard
    gate: Gate
    """Who may come in."""
    limiter: Limiter
    """How much of it."""
    pruner: Pruner
    pool: Pool
    opaque: OpaqueServers
    step_log: StepLog
    """Estimated steps on their way to Redis."""
    roster: Roster
    admission: Admission
    shedding: Shedding
    entropies: TaskEntropies
    recorder: Recorder
    ledger: Ledger
    answers: AnswerMeasure
    feedback: FeedbackBook
    guardrails: GuardrailWatch
    shadows: Shadows
    drain: Drain
    metrics: Metrics
    tracing: Tracing
    fields: FieldNotes
    redis: Redis
    redis_watch: RedisWatch
    clock: Callable[[], float]
    """Unix time, seconds."""
    monotonic: Callable[[], float]
    """Seconds from an unknown start; for durations."""
    started_at: float
    """Unix time, seconds."""
    new_id: Callable[[], str]
    """A turn's id, unique over all gateways."""
