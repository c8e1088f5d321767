"""Who a request comes from: found out before its endpoint runs, by the scopes of its path."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import Response

from gateway.api.guard import discard_body
from gateway.api.limits import charge
from gateway.api.path import Endpoint, Path
from gateway.api.state import deps_of
from gateway.errors import AuthenticationFailed, InsufficientScope, ModelNotFound, RequestError
from gateway.flow.deps import Deps
from gateway.keys.gate import LOOPBACK, Caller, Visit
from gateway.keys.memory import Wanted
from gateway.store.lineage import DEFAULT_TASK

LOCAL_HOST = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:[0-9]{1,5})?", re.IGNORECASE)
_CALLER = "gravity.caller"


def guarded(path: Path) -> Endpoint:
    """Return the path's endpoint behind its gate. What needs no scope stays as it is."""
    if not path.scopes:
        return path.endpoint

    async def endpoint(request: Request) -> Response:
        deps = deps_of(request)
        try:
            caller = request.scope[_CALLER] = _admitted(request, deps, path)
        except RequestError:
            await discard_body(request)
            raise
        if path.charge == "request":
            await charge(request.scope, deps, caller.key, Wanted())
        return await path.endpoint(request)

    return endpoint


def caller_of(scope: Mapping[str, Any]) -> Caller:
    """Return who was let in with this request (its ASGI scope)."""
    return cast(Caller, scope[_CALLER])


def require_use(request: Request, deps: Deps, model: str | None, task: str) -> None:
    """Let through what the caller's key may use. ``task``: as requested, empty for the default.

    Raises ModelNotFound, in the words of a model that there is not, and InsufficientScope.
    """
    key = caller_of(request.scope).key
    if key is None:
        return
    if model is not None and not may_see(request, model):
        deps.metrics.key_refusals.labels("model").inc()
        raise ModelNotFound(f"No worker serves the model {model[:200]!r}.", param="model")
    if key.tasks and (task or DEFAULT_TASK) not in key.tasks:
        deps.metrics.key_refusals.labels("task").inc()
        raise InsufficientScope("The key is not for this task.", param="task")


def may_see(request: Request, model: str) -> bool:
    """Whether the caller's key may use this model."""
    key = caller_of(request.scope).key
    return key is None or not key.models or model in key.models


def require_lane_choice(request: Request, deps: Deps) -> None:
    """Let through whoever may send X-Gravity-Lane. Raises InsufficientScope."""
    caller = caller_of(request.scope)
    match deps.settings.lane_override:
        case "anyone":
            is_allowed = True
        case "admin":
            is_allowed = caller.is_admin
        case "auto":
            is_allowed = caller.is_admin or (caller.name == LOOPBACK and not deps.gate.has_admin_key)
    if not is_allowed:
        raise InsufficientScope("The caller may not choose a lane.", param="X-Gravity-Lane")


def is_local(request: Request) -> bool:
    """Whether both ends are this machine: the peer's address, and the name that it asked for.

    The name is looked at because a page in a browser here can be made to ask for ours (DNS rebinding). It is
    read from the header itself: for one that it does not understand, Starlette would give our own address.
    """
    if request.client is None:
        return False
    hosts = request.headers.getlist("host")
    return _is_loopback(request.client.host) and len(hosts) == 1 and bool(LOCAL_HOST.fullmatch(hosts[0]))


@lru_cache(maxsize=256)
def _is_loopback(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def _admitted(request: Request, deps: Deps, path: Path) -> Caller:
    visit = Visit(
        presented=presented_in(request),
        wanted=path.scopes,
        is_reading=request.method in ("GET", "HEAD"),
        is_admin=path.is_admin,
        is_local=lambda: is_local(request),
    )
    try:
        return deps.gate.admit(visit)
    except AuthenticationFailed:
        deps.metrics.key_refusals.labels("invalid").inc()
        raise
    except InsufficientScope:
        reason = "scope" if deps.gate.asks_for_key(is_admin=path.is_admin) else "keyless"
        deps.metrics.key_refusals.labels(reason).inc()
        raise


def presented_in(request: Request) -> bytes:
    """Return what stands after ``Authorization: Bearer``, as OpenAI's clients send a key."""
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    return given.strip().encode("latin-1") if scheme.lower() == "bearer" else b""
