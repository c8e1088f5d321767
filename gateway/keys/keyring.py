"""All keys at one moment, and whether what somebody sends is one of them."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TypeAlias

from gateway.keys.key import Key
from gateway.keys.secret import digest_of, id_of

NOBODYS = "0" * 64
"""A hash that stands in where there is none to compare with: nothing is known that hashes to it."""

Compare: TypeAlias = Callable[[str, str], bool]
"""In a time that does not depend on where two strings differ."""


class Keyring:
    """Immutable: a change is another ring.

    Nothing is remembered of what was presented: a check is one SHA-256 of 80 bytes and two comparisons, about
    as long as a look into a cache would be, and a key that expires or is revoked is so at once.
    """

    def __init__(
        self, keys: Mapping[str, Key], clock: Callable[[], float], compare: Compare = hmac.compare_digest
    ) -> None:
        self.keys = MappingProxyType(dict(keys))
        self._clock = clock
        self._compare = compare

    def verified(self, presented: bytes) -> Key | None:
        """Return the key that ``presented`` is; None for whatever opens nothing, for whichever reason.

        Missing, malformed, unknown, wrong, expired and revoked take the same way: one hash, two comparisons.
        """
        now = datetime.fromtimestamp(self._clock(), UTC)
        key = self.keys.get(id_of(presented))
        digest = digest_of(presented)
        current, before = _hashes(key, now)
        is_current = self._compare(digest, current)
        is_before = self._compare(digest, before)
        is_held = is_current or is_before
        return key if key is not None and is_held and key.is_valid(now) else None


def _hashes(key: Key | None, now: datetime) -> tuple[str, str]:
    if key is None:
        return NOBODYS, NOBODYS
    return key.sha256, key.replaced_sha256(now) or NOBODYS
