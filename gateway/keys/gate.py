"""Who may come in: the holder of a key with the scope, or whoever is near while there is no key."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from gateway.errors import AuthenticationFailed, InsufficientScope
from gateway.keys.fixed import ADMIN_KEY, FixedKey
from gateway.keys.key import Key
from gateway.keys.scope import Scope, opens
from gateway.keys.store import KeyStore
from gateway.settings import Keyless
from gateway.telemetry.logs import log

LOOPBACK = "loopback"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Caller:
    """Whoever was let in."""

    name: str
    """For the history of changes."""
    key: Key | None = None
    """None for the three keys of the settings, and where none was asked for."""
    is_admin: bool = False


class Visit(NamedTuple):
    """A request as the gate sees it."""

    presented: bytes
    """What stands after Bearer; empty where there is nothing of the kind."""
    wanted: frozenset[Scope]
    """Any one of them is enough."""
    is_reading: bool
    is_admin: bool
    """Whether it goes to /admin."""
    is_local: Callable[[], bool]
    """Whether it comes from this machine."""


@dataclass(frozen=True, slots=True)
class Gate:
    """``fixed``: the keys of the process's own settings."""

    keys: KeyStore
    fixed: tuple[FixedKey, ...]
    keyless: Keyless

    @property
    def has_admin_key(self) -> bool:
        return any(key.name == ADMIN_KEY for key in self.fixed)

    async def begin(self) -> None:
        """Read the keys before the first request, and say where there is none: then much is open."""
        await self.keys.reload_fleet()
        if not self.keys.is_configured and self.keyless != "nobody":
            log(logger, logging.WARNING, "no_keys", open_to=self.keyless)

    def asks_for_key(self, *, is_admin: bool) -> bool:
        """Whether nobody comes in without a key: one is configured, or none is needed to be closed."""
        return self.keys.is_configured or self.keyless == "nobody" or (is_admin and bool(self.fixed))

    def admit(self, visit: Visit) -> Caller:
        """Return who it is.

        Raises AuthenticationFailed, the same for whatever is wrong with a key, and InsufficientScope for a
        key of another scope and, while no key is configured, for whoever is not on this machine.
        """
        # Every key is compared, whichever fits: the time taken tells nothing of which there are.
        held = [key for key in self.fixed if key.is_held_by(visit.presented)]
        key = self.keys.ring.verified(visit.presented)
        if key is not None and opens(frozenset(key.scopes), visit.wanted):
            return Caller(f"{key.name} ({key.id})", key, "admin" in key.scopes)
        for fixed in held:
            if fixed.allows(visit.wanted, is_reading=visit.is_reading):
                return Caller(fixed.name, is_admin=fixed.name == ADMIN_KEY)
        if not self.asks_for_key(is_admin=visit.is_admin):
            return self._without_key(visit)
        if key is None and not held:
            raise AuthenticationFailed
        raise InsufficientScope(f"The {held[0].name if held else 'key'} does not allow this.")

    def _without_key(self, visit: Visit) -> Caller:
        if visit.is_local():
            return Caller(LOOPBACK)
        if self.keyless == "anyone" and not visit.is_admin:
            return Caller("anyone")
        raise InsufficientScope("No key is configured: this is for the loopback address alone.")
