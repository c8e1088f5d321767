"""Documents of older schema versions, as today's would be written.

| from | to | what changed |
|---|---|---|
| 1 | 2 | a task's ``context.keep_threshold`` is called ``context.keep`` |

A document without ``schema_version`` is read as version 1, since a rename is harmless to a newer one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gateway.store.backend import Kind
from gateway.store.document import SCHEMA_VERSION
from gateway.store.documents import Documents


def migrated(kind: Kind, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``document`` in today's schema version; one from the future is returned as it is."""
    version = schema_version(document)
    current = dict(document)
    for step in _STEPS[version - 1 :] if version >= 1 else ():
        current = step(kind, current)
    if "schema_version" in current and 1 <= version < SCHEMA_VERSION:
        current["schema_version"] = SCHEMA_VERSION
    return current


def all_migrated(documents: Documents) -> Documents:
    """Return all of ``documents`` in today's schema version."""
    return Documents(
        {name: migrated("tasks", each) for name, each in documents.tasks.items()},
        {name: migrated("experiments", each) for name, each in documents.experiments.items()},
    )


def schema_version(document: Mapping[str, Any]) -> int:
    """Return what the document says of itself: 1 where it says nothing, 0 where it says no number."""
    version = document.get("schema_version", 1)
    return version if type(version) is int and version >= 1 else 0


def is_from_the_future(document: Mapping[str, Any]) -> bool:
    return schema_version(document) > SCHEMA_VERSION


def _keep(kind: Kind, document: dict[str, Any]) -> dict[str, Any]:
    context = document.get("context")
    if kind != "tasks" or not isinstance(context, Mapping):
        return document
    if "keep_threshold" not in context or "keep" in context:
        return document
    renamed = {"keep" if name == "keep_threshold" else name: value for name, value in context.items()}
    return {**document, "context": renamed}


_STEPS: tuple[Callable[[Kind, dict[str, Any]], dict[str, Any]], ...] = (_keep,)
"""The step at index n makes version n + 2 of version n + 1."""
