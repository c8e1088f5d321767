"""``/livez``, ``/readyz``, ``/metrics``. None of them touches the model."""

from __future__ import annotations

from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import Request
from starlette.responses import Response

from worker.server.answer import JsonResponse
from worker.server.deps import deps_of


async def livez(request: Request) -> Response:
    """The process answers."""
    return JsonResponse({"status": "alive"})


async def readyz(request: Request) -> Response:
    """503 while shutting down and where the engine's thread has died. Redis away is no reason."""
    deps = deps_of(request)
    if not deps.engine.is_alive:
        return JsonResponse({"status": "engine stopped"}, status_code=503)
    if deps.roster.is_draining:
        return JsonResponse({"status": "draining"}, status_code=503)
    return JsonResponse({"status": "ready", "model": deps.model_name})


async def metrics(request: Request) -> Response:
    deps = deps_of(request)
    return Response(generate_latest(deps.metrics.registry), media_type=CONTENT_TYPE_LATEST)
