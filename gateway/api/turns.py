"""``/admin/turns``: what the gateway remembers of its turns, and how it is made to forget them."""

from __future__ import annotations

import logging
import re
import time
from dataclasses import asdict
from typing import Annotated, Any, cast

import orjson
from pydantic import BaseModel, ConfigDict, Field
from redis.exceptions import RedisError
from starlette.requests import Request
from starlette.responses import Response

from gateway.api.answer_schema import RecordedTurn
from gateway.api.config_schema import as_body
from gateway.api.path import Path
from gateway.api.state import deps_of
from gateway.errors import InvalidRequest, NotFound, StoreUnavailable, TraceError
from gateway.flow.deps import Deps
from gateway.flow.erase import Erased, erase_turn, erase_user
from gateway.keys.scope import Scope
from gateway.telemetry.logs import log
from gateway.trace.export import as_columns
from gateway.trace.keys import turn_key
from gateway.trace.moments import parse_moment
from gateway.trace.query import DEFAULT_LIMIT, TurnQuery, TurnSummaryRow, find_turns
from gateway.trace.steps import ChoiceSteps, read_steps

TURN_ID = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
MAX_LIMIT = 1_000

logger = logging.getLogger(__name__)


class TurnsQuery(BaseModel):
    """Which turns: what is left out is not asked for."""

    model_config = ConfigDict(extra="forbid")

    task: str | None = None
    lane: str | None = None
    config: str | None = None
    """The beginning of a configuration's sha."""
    experiment: str | None = None
    status: str | None = None
    model: str | None = None
    user: str | None = None
    """As the requests named it."""
    since: str | None = None
    """When they were received: 15m, 1h, 2d (ago), or 2026-11-30T10:00."""
    until: str | None = None
    limit: Annotated[int, Field(ge=1, le=MAX_LIMIT)] = DEFAULT_LIMIT


class UserQuery(BaseModel):
    """Whose turns are deleted."""

    model_config = ConfigDict(extra="forbid")

    user: Annotated[str, Field(min_length=1)]
    """As the requests named it."""


class TurnList(BaseModel):
    """The newest first."""

    turns: list[TurnSummaryRow]
    took_s: float


async def list_turns(request: Request) -> Response:
    """``GET /admin/turns``: the entries of the turns that are asked for, the newest first."""
    deps = deps_of(request)
    asked = as_body(TurnsQuery, request.query_params)
    query = TurnQuery(
        asked.task,
        asked.lane,
        asked.config,
        asked.experiment,
        asked.status,
        _moment("since", asked.since, deps),
        _moment("until", asked.until, deps),
        asked.user,
        asked.limit,
        asked.model,
    )
    started_s = time.perf_counter()
    try:
        rows = await find_turns(deps.redis, query)
    except (RedisError, OSError) as error:
        raise StoreUnavailable from error
    took_s = time.perf_counter() - started_s
    return _json({"turns": [asdict(row) for row in rows], "took_s": took_s})


async def get_turn(request: Request) -> Response:
    """``GET /admin/turns/{id}``: the record, and the steps of each choice as columns.

    ``{"turn": …, "choices": [{"choice", "finish_reason", "num_steps", "steps": {column: […]}}],
    "trace_problem"}``. ``finish_reason`` is null while the worker still writes; ``trace_problem`` says why
    there are no steps where they are damaged or not all there.
    """
    deps = deps_of(request)
    turn_id = _turn_id(request)
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
    return _json(
        {
            "turn": orjson.Fragment(cast(bytes, record)),
            "choices": [as_columns(choice) for choice in choices],
            "trace_problem": problem,
        }
    )


async def delete_turn(request: Request) -> Response:
    """``DELETE /admin/turns/{id}``: everything that is kept of one turn; how many of each there were."""
    deps = deps_of(request)
    turn_id = _turn_id(request)
    try:
        erased = await erase_turn(deps.redis, turn_id)
    except (RedisError, OSError) as error:
        raise StoreUnavailable from error
    if erased == Erased():
        raise NotFound(f"There is no turn {turn_id}.")
    return _told(erased)


async def delete_turns(request: Request) -> Response:
    """``DELETE /admin/turns?user=``: all turns of a user and its part in experiments; how many of each."""
    deps = deps_of(request)
    user = as_body(UserQuery, request.query_params).user
    try:
        erased = await erase_user(deps.redis, user)
    except (RedisError, OSError) as error:
        raise StoreUnavailable from error
    return _told(erased)


def _turn_id(request: Request) -> str:
    turn_id = request.path_params["turn_id"]
    if not TURN_ID.fullmatch(turn_id):
        raise NotFound
    return str(turn_id)


def _moment(name: str, text: str | None, deps: Deps) -> float | None:
    try:
        return None if text is None else parse_moment(text, deps.clock())
    except TraceError:
        raise InvalidRequest(f"{name} is a time such as 1h or 2026-11-30T10:00.", param=name) from None


def _told(erased: Erased) -> Response:
    counts = asdict(erased)
    log(logger, logging.INFO, "turns_erased", **counts)
    return _json(counts)


def _json(content: Any) -> Response:
    return Response(orjson.dumps(content), media_type="application/json")


TAGS = ("turns",)
READ, WRITE = frozenset[Scope]({"turns:read"}), frozenset[Scope]({"turns:write"})
TURN_PATHS = (
    Path(
        "GET",
        "/admin/turns",
        list_turns,
        "Recorded turns, the newest first",
        TAGS,
        query=TurnsQuery,
        response=TurnList,
        errors=(StoreUnavailable,),
        scopes=READ,
    ),
    Path(
        "DELETE",
        "/admin/turns",
        delete_turns,
        "Delete all turns of a user",
        TAGS,
        query=UserQuery,
        response=Erased,
        errors=(StoreUnavailable,),
        scopes=WRITE,
    ),
    Path(
        "GET",
        "/admin/turns/{turn_id}",
        get_turn,
        "A recorded turn and its steps",
        TAGS,
        response=RecordedTurn,
        errors=(StoreUnavailable,),
        scopes=READ,
    ),
    Path(
        "DELETE",
        "/admin/turns/{turn_id}",
        delete_turn,
        "Delete a turn",
        TAGS,
        response=Erased,
        errors=(StoreUnavailable,),
        scopes=WRITE,
    ),
)
