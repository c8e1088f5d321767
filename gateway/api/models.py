"""``GET /v1/models`` and one model of it: what the workers serve."""

from __future__ import annotations

from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from gateway.api.caller import may_see
from gateway.api.state import deps_of
from gateway.errors import ModelNotFound
from gateway.flow.deps import Deps


async def list_models(request: Request) -> Response:
    deps = deps_of(request)
    models = [_model(deps, name) for name in deps.pool.models if may_see(request, name)]
    return _json({"object": "list", "data": models})


async def get_model(request: Request) -> Response:
    deps = deps_of(request)
    name = request.path_params["model"]
    if name not in deps.pool.models or not may_see(request, name):
        raise ModelNotFound(param="model")
    return _json(_model(deps, name))


def _model(deps: Deps, name: str) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": int(deps.started_at),
        "owned_by": "narrative-gravity",
        "max_model_len": deps.pool.models[name],
    }


def _json(content: object) -> Response:
    return Response(orjson.dumps(content), media_type="application/json")
