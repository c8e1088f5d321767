"""The Redis keys of keys and of their limits. What one script touches shares a hash tag."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KeyNames:
    """Of one namespace's keys."""

    namespace: str

    @property
    def keys(self) -> str:
        """Hash: a key's id to its JSON, without the secret."""
        return f"ng:{{keys:{self.namespace}}}:keys"

    @property
    def bell(self) -> str:
        """Channel that rings, without a word, when a key has changed."""
        return f"{self.keys}:bell"


@dataclass(frozen=True, slots=True)
class LimitNames:
    """Of one key's limits."""

    namespace: str
    key_id: str

    @property
    def buckets(self) -> str:
        """Hash: what is left of the requests and the tokens, and when that was so."""
        return self._name("buckets")

    @property
    def turns(self) -> str:
        """Sorted set: open turns by the time at which their lease ends."""
        return self._name("turns")

    def _name(self, name: str) -> str:
        return f"ng:{{limit:{self.namespace}:{self.key_id}}}:{name}"
