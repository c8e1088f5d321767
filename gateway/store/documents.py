"""The documents of one configuration as plain data: what is published, stored, compared and named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gateway.store.versions import canonical_json, content_sha


@dataclass(frozen=True, slots=True)
class Documents:
    """What was written, field by field, without what defaults and inheritance make of it."""

    tasks: Mapping[str, Mapping[str, Any]]
    """By task_type."""
    experiments: Mapping[str, Mapping[str, Any]]
    """By id."""

    @property
    def sha(self) -> str:
        """sha256 of the canonical JSON."""
        return content_sha(self._content())

    def as_bytes(self) -> bytes:
        """The canonical JSON itself, whose sha256 is ``sha``."""
        return canonical_json(self._content())

    def _content(self) -> dict[str, Any]:
        return {"tasks": dict(self.tasks), "experiments": dict(self.experiments)}
