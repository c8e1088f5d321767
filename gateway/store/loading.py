"""Where a gateway's configuration comes from: the same four questions to a folder and to Redis."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from gateway.store.documents import Documents


@dataclass(frozen=True, slots=True)
class Loaded:
    """One version as it was read; nothing says yet that it can serve."""

    number: int
    sha: str
    documents: Documents
    places: Mapping[str, str] = field(default_factory=dict)
    """The file of each ``tasks/NAME`` and ``experiments/ID``, for messages."""


class ConfigSource(Protocol):
    """All but ``rings`` block."""

    def has_changed(self) -> bool:
        """Say whether ``load`` would give something else than last time.

        Raises ConfigError where the store does not answer or has nothing any more.
        """

    def load(self) -> Loaded:
        """Return what is in force. Raises ConfigError where it cannot be read."""

    def last_good(self) -> Loaded | None:
        """Return the copy of what served last, for a start without the store."""

    def keep(self, loaded: Loaded) -> None:
        """Take ``loaded`` for the last good one: it serves from now on."""

    def rings(self) -> AsyncGenerator[None, None]:
        """Ring when something may have changed, and at an interval in any case."""
