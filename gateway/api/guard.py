"""Who may do what, and how much may be sent."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from pydantic import SecretStr
from starlette.requests import Request

from gateway.errors import AuthenticationFailed, InsufficientScope, RequestTooLarge
from gateway.settings import GatewaySettings

DISCARD_BYTES = 64 * 1024 * 1024
DISCARD_S = 5.0
LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
LOOPBACK = "loopback"
ADMIN_KEY = "admin key"

AdminScope: TypeAlias = Literal["turns", "experiments", "config", "admin"]
"""A part of /admin. "admin" is what belongs to none of the others."""


@dataclass(frozen=True, slots=True)
class AdminKey:
    """A key that is set, and what its holder may do under /admin."""

    name: str
    """What the history calls whoever publishes with it."""
    secret: SecretStr
    scopes: frozenset[AdminScope]
    reads_only: bool = False

    def allows(self, scope: AdminScope, method: str) -> bool:
        return scope in self.scopes and (not self.reads_only or method in ("GET", "HEAD"))


def admin_keys(settings: GatewaySettings) -> tuple[AdminKey, ...]:
    """Return the keys that are set, the widest first. An empty one is none: anybody could send it."""
    every = frozenset(get_args(AdminScope))
    keys = (
        (ADMIN_KEY, settings.admin_key, every, False),
        ("config key", settings.config_key, frozenset[AdminScope]({"config"}), False),
        ("read key", settings.read_key, every, True),
    )
    return tuple(
        AdminKey(name, secret, scopes, reads_only)
        for name, secret, scopes, reads_only in keys
        if secret is not None and secret.get_secret_value()
    )


def require_scope(request: Request, settings: GatewaySettings, scope: AdminScope) -> str:
    """Return the name of who may do this under /admin: a key's, or "loopback" where no key is set.

    Raises AuthenticationFailed, with one message for a missing and a wrong key, and InsufficientScope for a
    key of another scope and, where no key is set, for whoever is not on this machine.
    """
    keys = admin_keys(settings)
    if not keys:
        if not is_local(request):
            raise InsufficientScope("Without NG_ADMIN_KEY, /admin is for the loopback address only.")
        return LOOPBACK
    # Every key is compared, whichever fits: the time taken tells nothing of which are set.
    held = [key for key in keys if _holds(request, key.secret)]
    if not held:
        raise AuthenticationFailed
    allowed = next((key for key in held if key.allows(scope, request.method)), None)
    if allowed is None:
        raise InsufficientScope(f"The {held[0].name} does not allow this.")
    return allowed.name


def require_admin(request: Request, settings: GatewaySettings) -> None:
    """Let through whoever may do what has no scope of its own; raises as ``require_scope``."""
    require_scope(request, settings, "admin")


def require_lane_choice(request: Request, settings: GatewaySettings) -> None:
    """Let through whoever may send X-Gravity-Lane. Raises InsufficientScope."""
    key = next((key.secret for key in admin_keys(settings) if key.name == ADMIN_KEY), None)
    match settings.lane_override:
        case "anyone":
            is_allowed = True
        case "admin":
            is_allowed = key is not None and _holds(request, key)
        case "auto":
            is_allowed = is_local(request) if key is None else _holds(request, key)
    if not is_allowed:
        raise InsufficientScope("The caller may not choose a lane.", param="X-Gravity-Lane")


def is_local(request: Request) -> bool:
    """Whether both ends are this machine: the peer's address, and the name that it asked for.

    The name is looked at because a page in a browser here can be made to ask for ours (DNS rebinding).
    """
    if request.client is None:
        return False
    try:
        address = ipaddress.ip_address(request.client.host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback and (request.url.hostname or "") in LOCAL_NAMES


async def read_body(request: Request, max_bytes: int) -> bytes:
    """Return the body. Raises RequestTooLarge as soon as it is known to be over ``max_bytes``."""
    announced = request.headers.get("content-length", "")
    stream = request.stream()
    parts = []
    num_bytes = int(announced) if announced.isdecimal() else 0
    if num_bytes <= max_bytes:
        num_bytes = 0
        async for part in stream:
            parts.append(part)
            num_bytes += len(part)
            if num_bytes > max_bytes:
                break
    if num_bytes > max_bytes:
        if "expect" not in request.headers:  # such a client waits for our word before it sends
            await _discard(stream)
        raise RequestTooLarge(f"The body is larger than {max_bytes} bytes.")
    return b"".join(parts)


async def _discard(stream: AsyncIterator[bytes]) -> None:
    """Read on for a while: a client that is still sending sees a reset, not our answer, if we just close."""
    num_bytes = 0
    try:
        async with asyncio.timeout(DISCARD_S):
            async for part in stream:
                num_bytes += len(part)
                if num_bytes > DISCARD_BYTES:
                    return
    except TimeoutError:
        return


def _holds(request: Request, key: SecretStr) -> bool:
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    is_equal = hmac.compare_digest(given.strip().encode("latin-1"), key.get_secret_value().encode())
    return scheme.lower() == "bearer" and is_equal
