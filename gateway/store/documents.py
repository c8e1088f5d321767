"""The documents of one configuration as plain data: what is published, stored, compared and named."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gateway.errors import ConfigError
from gateway.store.versions import canonical_json, content_sha


@dataclass(frozen=True, slots=True)
class Documents:
    """What was written, field by field, without what defaults, inheritance and migration make of it.

    Read a task through ``lineage.effective``; the fields here may be those of another schema version.
    """

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


def documents_from_bytes(content: bytes) -> Documents:
    """Return what ``Documents.as_bytes`` wrote, in any schema version: the sha is that of ``content``.

    Fields that this program does not know stay in it, and old ones are migrated where a document is read.
    Raises ConfigError where ``content`` is something else.
    """
    try:
        data = json.loads(content)
    except ValueError as error:
        raise ConfigError(f"a stored configuration is not JSON: {error}") from error
    if not isinstance(data, dict) or set(data) != {"tasks", "experiments"}:
        raise ConfigError("a stored configuration has tasks and experiments, and nothing else")
    for kind, documents in data.items():
        if not isinstance(documents, dict) or not all(isinstance(each, dict) for each in documents.values()):
            raise ConfigError("must be documents by their names", file=kind)
    return Documents(data["tasks"], data["experiments"])
