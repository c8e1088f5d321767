"""The three keys of the process's own settings, with what each is for."""

from __future__ import annotations

import hmac
from dataclasses import dataclass

from pydantic import SecretStr

from gateway.keys.scope import EVERY, Scope, opens
from gateway.settings import GatewaySettings

ADMIN_KEY = "admin key"


@dataclass(frozen=True, slots=True)
class FixedKey:
    """A key that is set, and what its holder may do."""

    name: str
    """What the history calls whoever publishes with it."""
    secret: SecretStr
    scopes: frozenset[Scope]
    reads_only: bool = False

    def is_held_by(self, presented: bytes) -> bool:
        """Whether it is what was presented, found out in a time that tells nothing."""
        return hmac.compare_digest(presented, self.secret.get_secret_value().encode())

    def allows(self, wanted: frozenset[Scope], *, is_reading: bool) -> bool:
        return opens(self.scopes, wanted) and (is_reading or not self.reads_only)


def fixed_keys(settings: GatewaySettings) -> tuple[FixedKey, ...]:
    """Return the keys that are set, the widest first. An empty one is none: anybody could send it."""
    config = frozenset[Scope]({"config:read", "config:write"})
    keys = (
        FixedKey(ADMIN_KEY, settings.admin_key or SecretStr(""), EVERY),
        FixedKey("config key", settings.config_key or SecretStr(""), config),
        FixedKey("read key", settings.read_key or SecretStr(""), EVERY, reads_only=True),
    )
    return tuple(key for key in keys if key.secret.get_secret_value())
