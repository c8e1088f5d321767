"""``/admin/experiments``: which there are, and what they found. Centre and analysis run in a thread."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Annotated, Literal

import orjson
from pydantic import Field
from redis.exceptions import RedisError
from starlette.requests import Request
from starlette.responses import Response

from gateway.api.config_problems import asked
from gateway.api.config_schema import Query, as_body
from gateway.api.path import Path
from gateway.api.state import deps_of
from gateway.errors import NotFound, StoreUnavailable
from gateway.flow.deps import Deps
from gateway.keys.scope import Scope
from gateway.lab.analysis import ExperimentReport, analyse
from gateway.lab.findings import report_json
from gateway.lab.srm import widths
from gateway.outcomes.experiments import experiments_in_force, find_experiment
from gateway.outcomes.read import num_entries, read_observations
from gateway.store.document import ExperimentDocument


class ReportQuery(Query):
    version: Annotated[int, Field(ge=1)] | None = None
    """By default the newest."""


@dataclass(frozen=True, slots=True)
class ListedExperiment:
    """``arms`` with the share of the enrolled units that each gets."""

    id: str
    version: int
    is_active: bool
    tasks: tuple[str, ...]
    coverage: float
    arms: dict[str, float]
    control: str
    primary_metric: str
    num_entries: int
    """What has been recorded of it: exposures, turns and feedback."""


@dataclass(frozen=True, slots=True)
class ExperimentList:
    data: tuple[ListedExperiment, ...]
    object: Literal["list"] = "list"


async def list_experiments(request: Request) -> Response:
    """``GET /admin/experiments``: those of the configuration in force, by id."""
    deps = deps_of(request)
    documents = await asked(deps.centre, experiments_in_force)
    try:
        listed = [await _listed(document, deps) for document in documents]
    except (RedisError, OSError) as error:
        raise StoreUnavailable from error
    return Response(orjson.dumps(ExperimentList(tuple(listed))), media_type="application/json")


async def report_experiment(request: Request) -> Response:
    """``GET /admin/experiments/{id}``: the report; with ``?version=`` that of an earlier version."""
    deps = deps_of(request)
    query = as_body(ReportQuery, request.query_params)
    name = request.path_params["experiment_id"]
    document = await asked(deps.centre, lambda centre: find_experiment(centre, name, query.version))
    try:
        observations = await read_observations(deps.redis, document.id, document.version)
    except (RedisError, OSError) as error:
        raise StoreUnavailable from error
    report = await asyncio.to_thread(analyse, document, observations)
    return Response(report_json(report), media_type="application/json")


READ = frozenset[Scope]({"experiments:read"})
EXPERIMENT_PATHS = (
    Path(
        "GET",
        "/admin/experiments",
        list_experiments,
        "The experiments of the configuration in force",
        response=ExperimentList,
        errors=(StoreUnavailable, NotFound),
        scopes=READ,
    ),
    Path(
        "GET",
        "/admin/experiments/{experiment_id}",
        report_experiment,
        "What an experiment has found",
        query=ReportQuery,
        response=ExperimentReport,
        errors=(StoreUnavailable,),
        scopes=READ,
    ),
)


async def _listed(document: ExperimentDocument, deps: Deps) -> ListedExperiment:
    return ListedExperiment(
        id=document.id,
        version=document.version,
        is_active=document.is_active,
        tasks=document.tasks,
        coverage=document.coverage,
        arms=widths(document.arms),
        control=document.control.name,
        primary_metric=document.primary_metric,
        num_entries=await num_entries(deps.redis, document.id, document.version),
    )
