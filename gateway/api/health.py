"""``/livez``, ``/readyz``, ``/health``, ``/metrics``: from memory, never from a worker (litellm#26987)."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import orjson
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response

from gateway.api.state import deps_of
from gateway.flow.deps import Deps


async def livez(request: Request) -> Response:
    """The process runs; nothing else is asked."""
    return _json({"status": "alive"})


async def readyz(request: Request) -> Response:
    """200 where a turn would be served: a worker is ready and the gateway is not going away."""
    reasons = not_ready_reasons(deps_of(request))
    return _json({"status": "not_ready" if reasons else "ready", "reasons": reasons}, 503 if reasons else 200)


async def health(request: Request) -> Response:
    """How everything is, for people. Redis away or a broken document is degraded, and still serving."""
    deps = deps_of(request)
    reasons = not_ready_reasons(deps)
    config = deps.config.status()
    keys = deps.gate.keys.status()
    is_whole = deps.redis_watch.is_answering and config.last_error is None and keys.is_current
    report: dict[str, Any] = {
        "status": "unavailable" if reasons else "ok" if is_whole else "degraded",
        "reasons": reasons,
        "config": asdict(config),
        "redis": {"is_answering": deps.redis_watch.is_answering, "reason": deps.redis_watch.reason},
        "keys": {"count": keys.num_keys, "is_current": keys.is_current},
        "records": {"waiting": deps.recorder.num_waiting, "lost": deps.recorder.num_lost},
        "workers": [asdict(worker) for worker in deps.pool.status()],
        "queue": {"waiting": deps.admission.num_waiting, "fill": deps.admission.fill},
        "shedding": {"level": deps.shedding.level, "steps": deps.shedding.steps},
        "open_turns": deps.drain.num_open,
    }
    return _json(report)


async def metrics(request: Request) -> Response:
    deps = deps_of(request)
    deps.metrics.worker_ready.clear()  # some may have gone since the last time
    deps.metrics.worker_in_flight.clear()
    for worker in deps.pool.status():
        deps.metrics.worker_ready.labels(worker.name).set(worker.is_ready)
        deps.metrics.worker_in_flight.labels(worker.name).set(worker.num_in_flight)
    return Response(deps.metrics.exposition(), media_type=CONTENT_TYPE_LATEST)


def not_ready_reasons(deps: Deps) -> list[str]:
    """Why no turn should be sent here; empty where one may."""
    reasons = []
    if deps.drain.is_draining:
        reasons.append("the gateway is shutting down")
    if not deps.pool.has_ready_worker:
        reasons.append("no worker is ready")
    return reasons


def _json(content: object, status: int = 200) -> Response:
    return Response(orjson.dumps(content, default=str), status_code=status, media_type="application/json")
