"""``/admin``: what the gateway remembers of its turns."""

from __future__ import annotations

import re
from typing import Any, cast

import orjson
from redis.exceptions import RedisError
from starlette.requests import Request
from starlette.responses import Response

from gateway.api.guard import require_admin
from gateway.api.state import deps_of
from gateway.errors import NotFound, StoreUnavailable, TraceError
from gateway.flow.record import turn_key
from gateway.trace.steps import ChoiceSteps, read_steps
from worker.protocol import STEP_COLUMNS

TURN_ID = re.compile(r"[A-Za-z0-9_.:-]{1,128}")


async def get_turn(request: Request) -> Response:
    """``GET /admin/turns/{id}``: the record, and the steps of each choice as columns.

    ``{"turn": …, "choices": [{"choice", "finish_reason", "num_steps", "steps": {column: […]}}],
    "trace_problem"}``. ``finish_reason`` is null while the worker still writes; ``trace_problem`` says why
    there are no steps where they are damaged or not all there.
    """
    deps = deps_of(request)
    require_admin(request, deps.settings)
    turn_id = request.path_params["turn_id"]
    if not TURN_ID.fullmatch(turn_id):
        raise NotFound
    choices: tuple[ChoiceSteps, ...] = ()
    problem = None
    try:
        record = await deps.redis.get(turn_key(turn_id))
        if record is None:
            raise NotFound(f"There is no turn {turn_id}.")
        choices = await read_steps(deps.redis, turn_id)
    except TraceError as error:
        problem = str(error)
    except (RedisError, OSError) as error:
        raise StoreUnavailable from error
    content = {
        "turn": orjson.Fragment(cast(bytes, record)),
        "choices": [_columns(choice) for choice in choices],
        "trace_problem": problem,
    }
    return Response(orjson.dumps(content), media_type="application/json")


def _columns(choice: ChoiceSteps) -> dict[str, Any]:
    return {
        "choice": choice.choice,
        "finish_reason": choice.finish_reason,
        "num_steps": len(choice.steps),
        "steps": {name: [getattr(step, name) for step in choice.steps] for name in STEP_COLUMNS},
    }
