"""``/v1/models``: the one model that this worker serves."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from worker.protocol import PROTOCOL_VERSION
from worker.server.answer import JsonResponse
from worker.server.deps import Deps, deps_of
from worker.server.prepare import check_model


async def list_models(request: Request) -> Response:
    return JsonResponse({"object": "list", "data": [_model(deps_of(request))]})


async def get_model(request: Request) -> Response:
    deps = deps_of(request)
    check_model(request.path_params["model"], deps)
    return JsonResponse(_model(deps))


def _model(deps: Deps) -> dict[str, Any]:
    return {
        "id": deps.model_name,
        "object": "model",
        "created": int(deps.started_at_s),
        "owned_by": "narrative-gravity",
        "root": deps.model_name,
        "parent": None,
        "max_model_len": deps.engine.max_context,
        "gravity": {
            "protocol": PROTOCOL_VERSION,
            "dtype": deps.engine.dtype,
            "weight_format": deps.engine.weight_format,
            "model": deps.model_name,
            "environment": dict(deps.environment),
        },
    }
