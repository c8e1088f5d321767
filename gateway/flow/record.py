"""Stage 8: the finished turn to Redis, metrics and log. Nothing here waits for Redis.

A turn becomes ``ng:turn:ID`` (JSON, with a lifetime) and one entry of the stream ``ng:turns`` (bounded) and
of its index. They are written in the background, in batches, at least once; while Redis is away they wait in
a bounded queue, and what falls out of it is counted.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from redis.asyncio import Redis
from redis.typing import EncodableT

from gateway.flow.expose import observe
from gateway.flow.retention import encoded
from gateway.flow.turn import Turn
from gateway.settings import GatewaySettings, TextRetention
from gateway.store.backlog import Backlog, BacklogMetrics, Room
from gateway.telemetry import genai
from gateway.telemetry.logs import log
from gateway.telemetry.metrics import OTHER, Metrics, TurnLabels, closed
from gateway.trace.index import Written, write_arguments
from gateway.trace.keys import text_hash
from gateway.trace.keys import turn_key as turn_key

if TYPE_CHECKING:
    from gateway.flow.deps import Deps

MAX_WAITING_BYTES = 64 * 1024 * 1024

Summary: TypeAlias = dict[EncodableT, EncodableT]

logger = logging.getLogger(__name__)


async def record(turn: Turn, deps: Deps) -> Turn:
    """Hand the finished turn over; it is written soon. A shadow is nobody's traffic, and counted apart."""
    deps.recorder.submit(turn)
    observe(turn, deps)
    if turn.shadow_of:
        _note_shadow(turn, deps)
        return turn
    _measure(turn, deps)
    s = None if turn.outcome.mean_gravity is None else 1.0 - turn.outcome.mean_gravity
    if turn.task is not None and s is not None:
        deps.entropies.observe(turn.task, turn.model, s)
    return turn


class Recorder:
    """Turns on their way to Redis."""

    def __init__(self, redis: Redis, settings: GatewaySettings, metrics: Metrics) -> None:
        self._settings = settings
        self._backlog = Backlog(
            _TurnWriter(redis, settings),
            Room(settings.record_queue, MAX_WAITING_BYTES),
            BacklogMetrics(
                metrics.records_waiting,
                metrics.record_failures,
                metrics.records_not_written,
                failure_event="records_not_written",
            ),
        )

    @property
    def num_waiting(self) -> int:
        return self._backlog.num_waiting

    @property
    def num_lost(self) -> int:
        return self._backlog.num_lost

    def submit(self, turn: Turn) -> None:
        """Queue a turn. The oldest make room where there is none."""
        content = encoded(turn, self._settings.text_retention)
        if len(content) > self._settings.max_record_bytes:
            content = encoded(turn, "none")
        self._backlog.submit(Written(turn.id, content, summary(turn, self._settings.text_retention)))

    async def watch(self) -> None:
        """Write what comes, until cancelled."""
        await self._backlog.watch()

    async def close(self) -> None:
        """Write what is left, once; what Redis does not take now is lost and counted."""
        await self._backlog.close()


class _TurnWriter:
    """Writes a batch of turns in one script, which is as good as a transaction and answers once."""

    def __init__(self, redis: Redis, settings: GatewaySettings) -> None:
        self._redis = redis
        self._settings = settings

    async def write(self, batch: Sequence[Written]) -> None:
        arguments = write_arguments(batch, self._settings.max_turns, self._settings.record_ttl_s)
        await self._redis.eval(*arguments)

    async def write_again(self, batch: Sequence[Written]) -> None:
        """Leave out what is there already."""
        async with self._redis.pipeline(transaction=False) as pipe:
            for turn in batch:
                pipe.exists(turn_key(turn.id))
            found = await pipe.execute()
        await self.write([turn for turn, is_there in zip(batch, found, strict=True) if not is_there])

    def lost(self, turn: Written) -> None:
        """Nobody has to know more than that one was lost."""


def summary(turn: Turn, retention: TextRetention = "full") -> Summary:
    """Return the fields of the entry in ``ng:turns``. What is not known is left out; no text is in it."""
    verdicts = turn.prune_report.verdicts
    fields: dict[EncodableT, EncodableT | None] = {
        "id": turn.id,
        "received_at": turn.received_at,
        "endpoint": turn.endpoint,
        "lane": turn.assignment.lane,
        "lane_reason": turn.assignment.reason,
        "experiment": turn.assignment.experiment or None,
        "experiment_version": turn.assignment.experiment_version or None,
        "unit": turn.assignment.unit or None,
        "user": text_hash(turn.user) or None if retention != "none" else None,
        "shadow_of": turn.shadow_of or None,
        "task": turn.task.task_type if turn.task else None,
        "config_sha": turn.config_sha,
        "model": turn.model,
        "worker": turn.worker or None,
        "seed": turn.outcome.seed,
        "bucket": turn.bucket,
        "expected_s": turn.expected_s,
        "bucket_pool": turn.bucket_pool,
        "documents_kept": sum(verdict.is_kept for verdict in verdicts),
        "documents_dropped": sum(not verdict.is_kept for verdict in verdicts),
        "tokens_before": turn.prune_report.tokens_before,
        "tokens_after": turn.prune_report.tokens_after,
        "prompt_tokens": turn.outcome.prompt_tokens,
        "completion_tokens": turn.outcome.completion_tokens,
        "time_to_first_token_s": turn.outcome.time_to_first_token_s,
        "latency_s": turn.outcome.latency_s,
        "mean_entropy_nats": turn.outcome.mean_entropy_nats,
        "mean_gravity": turn.outcome.mean_gravity,
        "entropic_time_nats": turn.outcome.entropic_time_nats,
        "net_drop_nats": turn.outcome.net_drop_nats,
        "envelope_nats": turn.outcome.envelope_nats,
        "cost_gmac": turn.outcome.cost_gmac,
        "nats_per_gmac": turn.outcome.nats_per_gmac,
        "cached_prompt_tokens": turn.outcome.cached_prompt_tokens,
        "mean_kept_share": turn.outcome.mean_kept_share,
        "is_estimated": 1 if turn.outcome.is_estimated else None,
        "mean_entropy_half_width_nats": turn.outcome.mean_entropy_half_width_nats,
        "mean_gravity_half_width": turn.outcome.mean_gravity_half_width,
        "entropic_time_half_width_nats": turn.outcome.entropic_time_half_width_nats,
        "status": turn.outcome.status,
        "error_code": turn.outcome.error_code or None,
        "finish": ",".join(turn.outcome.finish_reasons) or None,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _note_shadow(turn: Turn, deps: Deps) -> None:
    outcome = turn.outcome
    deps.metrics.shadows.labels(outcome.status).inc()
    fields: dict[str, Any] = {
        "turn": turn.id,
        "shadow_of": turn.shadow_of,
        "lane": turn.assignment.lane,
        "status": outcome.status,
        "latency_s": round(outcome.latency_s, 4),
    }
    log(logger, logging.INFO, "shadow", **fields)


def _measure(turn: Turn, deps: Deps) -> None:
    outcome = turn.outcome
    labels = TurnLabels(
        model=closed(turn.model, deps.pool.models),
        task=turn.task.task_type if turn.task else OTHER,
        lane=turn.assignment.lane,
        bucket=str(turn.bucket),
        worker=turn.worker or OTHER,
    )
    deps.metrics.observe_turn(labels, outcome.status, outcome.latency_s)
    if turn.bucket_pool is not None:
        deps.metrics.bucket_pools.labels(labels.bucket, turn.bucket_pool).inc()
    if outcome.time_to_first_token_s is not None:
        num_later = max(outcome.completion_tokens - 1, 0)
        later_s = (outcome.latency_s - outcome.time_to_first_token_s) / num_later if num_later else None
        deps.metrics.observe_tokens(labels, outcome.time_to_first_token_s, later_s)
    report = turn.prune_report
    deps.metrics.observe_context(labels, report.tokens_before, report.tokens_after)
    deps.metrics.observe_findings(labels, len(report.conflicts), len(report.centres))
    fields: dict[str, Any] = {
        "turn": turn.id,
        "lane": labels.lane,
        "task": labels.task,
        "worker": turn.worker,
        "attempts": turn.num_attempts,
        "status": outcome.status,
        "error_code": outcome.error_code,
        "latency_s": round(outcome.latency_s, 4),
        genai.OPERATION_NAME: genai.OPERATIONS[turn.endpoint],
        genai.PROVIDER_NAME: genai.PROVIDER,
        genai.REQUEST_MODEL: labels.model,
        genai.INPUT_TOKENS: outcome.prompt_tokens,
        genai.OUTPUT_TOKENS: outcome.completion_tokens,
        genai.TIME_TO_FIRST_TOKEN: outcome.time_to_first_token_s,
    }
    log(logger, logging.INFO, "turn", **fields)
