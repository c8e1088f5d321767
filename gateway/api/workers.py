"""``/admin/workers``: the pool as it is, and the workers that are registered at run time."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Literal

import orjson
from pydantic import Field, StringConstraints
from starlette.requests import Request
from starlette.responses import Response

from gateway.api.caller import caller_of
from gateway.api.config_schema import Body, Query, as_body
from gateway.api.guard import read_body
from gateway.api.path import Path
from gateway.api.schema import parsed
from gateway.api.state import deps_of
from gateway.errors import Conflict, InvalidRequest, NotFound, RequestTooLarge, StoreUnavailable
from gateway.flow.deps import Deps
from gateway.pool.registry import WorkerStatus
from gateway.pool.roster import Registration, Wish
from gateway.settings import Bucket, check_worker_url

MAX_LIFETIME_S = 30 * 86_400.0

WorkerUrl = Annotated[str, StringConstraints(min_length=1, max_length=2_000)]


class WorkerBody(Body):
    """What is registered. To send it again begins the lifetime anew."""

    url: WorkerUrl
    lifetime_s: Annotated[float, Field(ge=1.0, le=MAX_LIFETIME_S, strict=False)] | None = None
    """Without one it stays until it is taken out."""
    drains: bool = False
    """No new turns; open ones finish. This may be said of a worker of NG_WORKERS too."""
    buckets: list[Bucket] = Field(default_factory=list, max_length=64)
    """Which it is for, of a worker of NG_WORKERS in place of NG_WORKER_BUCKETS; none are all."""


class WorkerQuery(Query):
    url: WorkerUrl


@dataclass(frozen=True, slots=True)
class ListedWorkers:
    """``data`` as this gateway sees them; ``registrations`` as they stand in Redis, for all gateways."""

    data: tuple[WorkerStatus, ...]
    registrations: tuple[Registration, ...]
    object: Literal["list"] = "list"


async def list_workers(request: Request) -> Response:
    """``GET /admin/workers``."""
    deps = deps_of(request)
    return await _listed(deps)


async def register_worker(request: Request) -> Response:
    """``POST /admin/workers``: register one, refresh it, or let it drain. Every gateway has it soon."""
    deps = deps_of(request)
    who = caller_of(request.scope).name
    sent = as_body(WorkerBody, parsed(await read_body(request, deps.settings.max_body_bytes)))
    url = _checked(sent.url, deps)
    await deps.roster.register(Wish(url, sent.lifetime_s, sent.drains, tuple(sent.buckets)), who)
    return await _listed(deps)


async def remove_worker(request: Request) -> Response:
    """``DELETE /admin/workers?url=…``: take a registration out; its worker's open turns finish."""
    deps = deps_of(request)
    url = as_body(WorkerQuery, request.query_params).url.rstrip("/")
    if not await deps.roster.remove(url):
        if deps.pool.is_settled(url):
            raise Conflict("This worker comes from NG_WORKERS; it can be let drain, not taken out.")
        raise NotFound("No worker is registered at this address.")
    return await _listed(deps)


WORKER_PATHS = (
    Path(
        "GET",
        "/admin/workers",
        list_workers,
        "The workers, those of the settings and those registered at run time",
        response=ListedWorkers,
        errors=(StoreUnavailable,),
    ),
    Path(
        "POST",
        "/admin/workers",
        register_worker,
        "Register a worker, refresh it, or let it drain",
        request=WorkerBody,
        response=ListedWorkers,
        errors=(Conflict, RequestTooLarge, StoreUnavailable),
    ),
    Path(
        "DELETE",
        "/admin/workers",
        remove_worker,
        "Take a registered worker out",
        query=WorkerQuery,
        response=ListedWorkers,
        errors=(NotFound, Conflict, StoreUnavailable),
    ),
)


async def _listed(deps: Deps) -> Response:
    """Answer with the list, which this gateway takes over at once."""
    registrations = await deps.roster.read()
    deps.pool.follow(registrations)
    listed = ListedWorkers(deps.pool.status(), registrations)
    return Response(orjson.dumps(asdict(listed)), media_type="application/json")


def _checked(url: str, deps: Deps) -> str:
    address = url.strip().rstrip("/")
    try:
        check_worker_url(address, deps.settings.allowed_networks)
    except ValueError as error:
        raise InvalidRequest(f"url: {error}", param="url") from error
    return address
