"""Puts the worker's HTTP application together."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response

from worker.engine.loop import EngineLoop
from worker.errors import GenerationFailedError, NoSuchRouteError, WorkerError, WrongMethodError
from worker.server.answer import JsonResponse
from worker.server.deps import Deps, deps_of
from worker.server.environment import environment_of, fingerprint_of
from worker.server.inbox import Inbox
from worker.server.metrics import Metrics
from worker.server.middleware import Observed
from worker.server.parse import UnknownFields
from worker.server.prompts import PromptEncoder
from worker.server.roster import Roster
from worker.server.routes import ROUTES
from worker.settings import WorkerSettings
from worker.trace import TraceOptions, TraceWriter

log = logging.getLogger(__name__)

_WATCH_S = 0.25


def create_app(settings: WorkerSettings, engine: EngineLoop) -> Starlette:
    """Compose routes and their parts around a loaded engine. Its thread runs while the application does."""
    metrics = Metrics((route.path for route in ROUTES), error_codes())
    roster = Roster(settings.max_batch + settings.max_waiting)
    trace = open_trace(settings)
    model_name = name_of(settings)
    environment = environment_of(engine, model_name)
    metrics.watch(engine.stats, trace.counters if trace is not None else None)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        prompts = PromptEncoder(engine.tokenizer)
        app.state.deps = Deps(
            settings=settings,
            engine=engine,
            model_name=model_name,
            environment=environment,
            fingerprint=fingerprint_of(environment),
            prompts=prompts,
            inbox=Inbox(asyncio.get_running_loop()),
            roster=roster,
            metrics=metrics,
            trace=trace,
            unknown_fields=UnknownFields(),
            new_id=lambda: uuid.uuid4().hex,
            new_seed=lambda: secrets.randbits(53),  # every JSON reader keeps 53 bits exactly
            now_s=time.time,
            clock_s=time.monotonic,
            started_at_s=time.time(),
        )
        engine.start()
        if trace is not None:
            trace.start()
        watch = asyncio.create_task(_watch(engine, roster))
        try:
            yield
        finally:
            watch.cancel()
            engine.stop()
            prompts.close()
            if trace is not None:
                await asyncio.to_thread(trace.stop)

    handlers: dict[Any, Any] = {
        WorkerError: _worker_error,
        HTTPException: _http_error,
        Exception: _unexpected_error,
    }
    observed = Middleware(Observed, metrics=metrics, clock_s=time.monotonic)
    app = Starlette(routes=ROUTES, lifespan=lifespan, exception_handlers=handlers, middleware=[observed])
    app.router.redirect_slashes = False  # a redirect goes to whatever host the client named
    app.state.roster = roster
    return app


def open_trace(settings: WorkerSettings) -> TraceWriter | None:
    """The writer for the configured Redis; None where none is configured."""
    address = settings.redis_address()
    if address is None:
        return None
    options = TraceOptions(
        spill_dir=settings.spill_dir,
        spill_max_bytes=settings.spill_max_bytes,
        max_queued_steps=settings.trace_max_queued_steps,
        max_entries=settings.trace_max_entries,
        ttl_s=settings.trace_ttl_s,
        timeout_s=settings.trace_timeout_s,
    )
    return TraceWriter(address, options)


def name_of(settings: WorkerSettings) -> str:
    """The name that requests use: as configured, else the model's id, or its folder's name for a path."""
    if settings.served_name is not None:
        return settings.served_name
    path = Path(settings.model).expanduser()
    return path.name if path.is_dir() else settings.model


def error_codes() -> Iterator[str]:
    """Every code of the tree: the closed label set of the error counter."""
    pending: list[type[WorkerError]] = [WorkerError]
    while pending:
        kind = pending.pop()
        yield kind.code
        pending += kind.__subclasses__()


async def _watch(engine: EngineLoop, roster: Roster) -> None:
    """Where the engine's thread dies, nobody waits for it for ever."""
    while engine.is_alive:  # noqa: ASYNC110 - a thread's end cannot be awaited
        await asyncio.sleep(_WATCH_S)
    log.critical("the engine has stopped")
    roster.shut(GenerationFailedError("the engine has stopped"))


async def _worker_error(request: Request, error: WorkerError) -> Response:
    deps_of(request).metrics.observe_error(error.code)
    headers = {"Retry-After": str(error.retry_after_s)} if error.retry_after_s is not None else None
    return JsonResponse(error.body(), status_code=error.status, headers=headers)


async def _http_error(request: Request, error: HTTPException) -> Response:
    if error.status_code == 405:
        problem: WorkerError = WrongMethodError("this path does not take this method")
    else:
        problem = NoSuchRouteError("there is no such path")
    response = await _worker_error(request, problem)
    response.headers.update(error.headers or {})
    return response


async def _unexpected_error(request: Request, error: Exception) -> Response:
    log.error("a request failed unexpectedly", exc_info=error)
    return await _worker_error(request, WorkerError("the worker failed; its log says how"))
