"""``gravity config status``: the head, and what every gateway serves."""

from __future__ import annotations

import asyncio

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from gateway.configure.speech import FINE, FOUND, Tell, age_text, answered, version_text
from gateway.errors import CentreUnavailable
from gateway.settings import GatewaySettings
from gateway.stack.target import Target
from gateway.store.fleet import FleetStatus, ReplicaView, fleet_status
from gateway.store.replicas import ReplicaBoard, ReplicaStatus

NO_REPORTS = (
    "what gateways serve is not known here: they report to Redis, which does not answer. "
    "A running gateway knows of itself: GET /admin/config/status"
)


def run_status(target: Target, tell: Tell) -> int:
    """Tell the head and a line for each gateway; return 1 where one drifts or has an error."""
    return answered(lambda: _status(target, tell))


def _status(target: Target, tell: Tell) -> int:
    settings = target.settings()
    head = target.centre().head()
    replicas: tuple[ReplicaStatus, ...] = ()
    problem = None
    try:
        replicas = asyncio.run(_reports(settings))
    except CentreUnavailable:
        problem = NO_REPORTS
    found = fleet_status(settings.config_namespace, head, replicas, problem)
    tell(found, status_lines(found))
    # Files serve without Redis: that nobody can report is no fault then.
    return FINE if found.is_well or found.problem == NO_REPORTS else FOUND


async def _reports(settings: GatewaySettings) -> tuple[ReplicaStatus, ...]:
    url, timeout_s = settings.redis_url.get_secret_value(), settings.redis_timeout_s
    redis = Redis.from_url(
        url, socket_timeout=timeout_s, socket_connect_timeout=timeout_s, retry=Retry(NoBackoff(), 0)
    )
    try:
        return await ReplicaBoard(redis, settings).read()
    finally:
        await redis.aclose()


def status_lines(found: FleetStatus) -> list[str]:
    """The head, its warnings, and each gateway's version, age, last error and warnings."""
    number = f"version {found.number}" if found.number else "not published yet"
    lines = [f"head of {found.namespace}: {number}, sha {found.sha}"]
    lines += [f"  warning: {warning}" for warning in found.warnings]
    if found.problem:
        lines.append(found.problem)
    elif not found.replicas:
        lines.append("no gateway has reported")
    for view in found.replicas:
        lines += _replica_lines(view, set(found.warnings))
    return lines


def _replica_lines(view: ReplicaView, known: set[str]) -> list[str]:
    report = view.report
    drift = "DRIFTED, serves " if view.has_drifted else ""
    copy = ", from its copy on disk" if report.is_last_good else ""
    lines = [
        f"{report.replica_id}: {drift}{version_text(report.number, report.sha)} for "
        f"{age_text(report.age_s)}{copy}"
    ]
    if report.last_error:
        lines.append(f"  error: {report.last_error}")
    return lines + [f"  warning: {warning}" for warning in view.warnings if warning not in known]
