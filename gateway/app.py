"""The composition root: builds everything once, hands it to the endpoints, takes it down in order."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from secrets import token_hex

from fastapi import FastAPI
from redis.asyncio import Redis
from starlette.middleware import Middleware
from starlette.types import ASGIApp

from gateway.api import problems
from gateway.api.access import Access
from gateway.api.caller import guarded
from gateway.api.direct import Direct, TurnsFirst
from gateway.api.origins import NamedOrigins
from gateway.api.routes import PATHS, TEMPLATES
from gateway.context.embed import Encoder, EncoderSettings
from gateway.context.encoders import Encoders
from gateway.context.pruner import Pruner
from gateway.context.remote import RemoteSettings
from gateway.context.selector import Selector
from gateway.context.shared_cache import SharedCache, SharedSettings
from gateway.errors import ConfigError, EncoderError
from gateway.flow.admission import Admission, QueueSettings
from gateway.flow.bucket import TaskEntropies
from gateway.flow.deps import Deps
from gateway.flow.drain import Drain
from gateway.flow.dry_build import dry_build
from gateway.flow.environment import own_environment
from gateway.flow.lean import Lean
from gateway.flow.opaque import OpaqueServers
from gateway.flow.pipeline import serve
from gateway.flow.record import Recorder
from gateway.flow.shadow import Shadows
from gateway.flow.shedding import Shedding, ShedSettings
from gateway.flow.step_log import StepLog
from gateway.flow.tracing import open_tracing
from gateway.keys.opening import open_gate, open_limiter
from gateway.outcomes.feedback import FeedbackBook
from gateway.outcomes.guardrail import GuardrailWatch, WatchParts, lock_key
from gateway.outcomes.ledger import Bounds, Ledger
from gateway.outcomes.relevance import AnswerMeasure
from gateway.pool.pieces import WordPieces
from gateway.pool.registry import Pool
from gateway.pool.roster import Roster
from gateway.settings import GatewaySettings
from gateway.store.connection import RedisWatch, open_redis
from gateway.store.opening import open_centre, open_store
from gateway.store.replicas import ReplicaBoard
from gateway.store.watch import ConfigStore
from gateway.telemetry.logs import log
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.once import FieldNotes

RESTART_PAUSE_S = 1.0
CANCEL_AGAIN_S = 0.2

logger = logging.getLogger(__name__)


def create_app(settings: GatewaySettings) -> FastAPI:
    """Return the application. Its parts live from startup to shutdown, in ``app.state.deps``."""
    metrics = Metrics()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        try:
            app.state.deps = deps = compose(settings, metrics)
        except ConfigError as error:
            reason, file, line = error.message, error.file, error.line
            log(logger, logging.ERROR, "configuration_unusable", reason=reason, file=file, line=line)
            raise
        await deps.gate.begin()
        tasks = [
            asyncio.create_task(_kept_running(name, work), name=name) for name, work in _watches(deps).items()
        ]
        if settings.preload_encoder:
            tasks.append(asyncio.create_task(_preload(deps.pruner), name="load encoder"))
        try:
            yield
        finally:
            await end_tasks(tasks)
            await deps.shadows.close()
            await deps.answers.close()
            await deps.pruner.aclose()
            await deps.ledger.close()
            await deps.recorder.close()
            await deps.step_log.close()
            await asyncio.to_thread(deps.tracing.close)
            await deps.limiter.close()
            await deps.pool.close()
            await deps.redis.aclose()

    app = TurnsFirst(lifespan=lifespan, openapi_url=None, redirect_slashes=False)
    for path in PATHS:
        app.add_api_route(path.template, guarded(path), methods=[path.method], response_model=None)
    around = [Middleware(Access, metrics=metrics, routes=TEMPLATES, new_id=new_request_id)]
    if settings.cors_origins:
        around.append(Middleware(NamedOrigins, origins=settings.cors_origins))
    app.user_middleware += around
    problems.install(app)
    app.turns = _inside(around, Direct(app))
    return app


def _inside(around: Sequence[Middleware], app: ASGIApp) -> ASGIApp:
    """Return ``app`` within ``around``, the first of them outermost, as the framework has them."""
    for each in reversed(around):
        app = each.cls(app, *each.args, **each.kwargs)
    return app


def compose(settings: GatewaySettings, metrics: Metrics) -> Deps:
    """Build the parts. Raises ConfigError where configuration or selector cannot be used."""
    redis = open_redis(settings)
    bounds = Bounds(settings.max_outcomes, settings.outcome_ttl_s)
    ledger = Ledger(redis, uuid.uuid4().hex, bounds, metrics)
    selector = Selector.load(settings.selector)
    config = _observed(open_store(settings, redis, time.time, dry_build), metrics)
    step_log = StepLog(redis, settings, metrics, time.time)
    centre, replicas = open_centre(settings, dry_build), ReplicaBoard(redis, settings)
    watch_parts = WatchParts(redis, lambda: open_redis(settings), centre, lambda: config.snapshot, metrics)
    pool = Pool.open(settings, time.monotonic, own_environment(settings, selector.version))
    queue = QueueSettings(settings.queue_limit, settings.queue_timeout_s, settings.queue_ageing_s)
    admission = Admission(pool, queue, metrics, time.monotonic)
    return Deps(
        settings=settings,
        config=config,
        centre=centre,
        replicas=replicas,
        gate=open_gate(settings, redis),
        limiter=open_limiter(settings, redis, metrics),
        pruner=Pruner(_encoders(settings, redis, metrics), settings.encoder_timeout_s, selector),
        opaque=OpaqueServers(
            settings, Lean(WordPieces(settings.opaque_tokenizers, time.monotonic)), step_log, time.monotonic
        ),
        step_log=step_log,
        pool=pool,
        admission=admission,
        shedding=Shedding(
            admission,
            ShedSettings(settings.shed_at, settings.shed_budget_factor, settings.shed_token_budget),
            metrics,
        ),
        roster=Roster(redis, settings.config_namespace),
        entropies=TaskEntropies(redis, settings.entropy_weight),
        recorder=Recorder(redis, settings, metrics),
        ledger=ledger,
        answers=AnswerMeasure(ledger, settings.encoder_timeout_s, metrics),
        feedback=FeedbackBook(redis, bounds, settings.record_ttl_s),
        guardrails=GuardrailWatch(
            watch_parts, lock_key(settings), replicas.replica_id, settings.guardrail_interval_s
        ),
        shadows=Shadows(serve, settings.max_shadows),
        drain=Drain(),
        metrics=metrics,
        tracing=open_tracing(settings, replicas.replica_id, lambda: pool.models),
        fields=FieldNotes(logger),
        redis=redis,
        redis_watch=RedisWatch(redis),
        clock=time.time,
        monotonic=time.monotonic,
        started_at=time.time(),
        new_id=new_turn_id,
    )


def _observed(config: ConfigStore, metrics: Metrics) -> ConfigStore:
    """Return ``config``, which the metrics from now on look at when they are read."""
    metrics.config_version.set_function(lambda: config.status().number)
    metrics.config_loaded_timestamp.set_function(lambda: config.status().loaded_at)
    metrics.config_last_reload_successful.set_function(lambda: config.status().last_error is None)
    return config


def _encoders(settings: GatewaySettings, redis: Redis, metrics: Metrics) -> Encoders:
    """Return the encoders, none of them ready yet; both share one cache in Redis."""
    shared = None
    if settings.shares_encodings:
        limits = SharedSettings(settings.encoder_redis_ttl_s, settings.encoder_redis_timeout_s)
        shared = SharedCache(redis, limits, metrics)
    local = EncoderSettings(
        model=settings.encoder_model,
        precision=settings.encoder_precision,
        num_threads=settings.encoder_threads,
        cache_bytes=settings.encoder_cache_bytes,
        reads=settings.encoder_scripts,
    )
    if settings.encoder_url is None:
        return Encoders(Encoder(local, shared, metrics))
    key = settings.encoder_api_key
    remote = RemoteSettings(
        url=settings.encoder_url,
        model=settings.encoder_remote_model,
        api_key=key.get_secret_value() if key else "",
        # A server that hangs is noticed before the request gives up.
        timeout_s=settings.encoder_timeout_s / 2,
        cache_bytes=settings.encoder_cache_bytes,
        allowed_networks=settings.allowed_networks,
    )
    return Encoders(Encoder(local, shared, metrics), Encoder(remote, shared, metrics))


def new_turn_id() -> str:
    return f"turn-{token_hex(16)}"


def new_request_id() -> str:
    return f"req-{token_hex(16)}"


def _watches(deps: Deps) -> dict[str, Callable[[], Awaitable[None]]]:
    return {
        "watch configuration": deps.config.watch,
        "report configuration": lambda: deps.replicas.watch(deps.config.status, lambda: deps.pool.models),
        **deps.gate.keys.watches(),
        **deps.limiter.watches(),
        "watch workers": deps.pool.watch,
        "follow registered workers": lambda: deps.roster.watch(
            deps.pool.follow, deps.settings.probe_interval_s
        ),
        "watch redis": deps.redis_watch.watch,
        "write records": deps.recorder.watch,
        "write outcomes": deps.ledger.watch,
        "write estimated steps": deps.step_log.watch,
        "measure answers": deps.answers.watch,
        "watch guardrails": deps.guardrails.watch,
        "share entropies": lambda: deps.entropies.watch(lambda: deps.config.snapshot.tasks.keys()),
    }


async def _preload(pruner: Pruner) -> None:
    try:
        await pruner.warm()
    except EncoderError as error:
        log(logger, logging.WARNING, "encoder_unavailable", reason=str(error))


async def end_tasks(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Cancel until all have ended.

    Once is not enough before Python 3.12: a cancel that meets the end of a wait_for, as redis-py has around
    every command that it sends, is lost (cpython#86296).
    """
    pending = set(tasks)
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=CANCEL_AGAIN_S)


async def _kept_running(name: str, work: Callable[[], Awaitable[None]]) -> None:
    """A background task that breaks is begun again: the gateway must not lose one for good."""
    while True:
        try:
            await work()
        except Exception:
            logger.exception("%s failed", name)
        await asyncio.sleep(RESTART_PAUSE_S)
