"""Where a document's fields come from: written here, inherited from ``default``, or the schema's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from gateway.errors import ConfigError
from gateway.store.backend import Kind
from gateway.store.documents import Documents
from gateway.store.lineage import DEFAULT_TASK, OWN_FIELDS, effective
from gateway.store.migrate import migrated
from gateway.store.snapshot import experiment_of

Origin: TypeAlias = Literal["written", "default", "schema"]


@dataclass(frozen=True, slots=True)
class SourcedField:
    """One field as it is in force. ``path`` is ``section.field``; a list is one value."""

    path: str
    value: Any
    origin: Origin


def written_document(documents: Documents, kind: Kind, name: str) -> Mapping[str, Any]:
    """Return the document as it was written. Raises ConfigError where there is none of that name."""
    found = (documents.tasks if kind == "tasks" else documents.experiments).get(name)
    if found is None:
        raise ConfigError(f"there is no {'task' if kind == 'tasks' else 'experiment'} {name!r}", file=kind)
    return found


def effective_document(documents: Documents, kind: Kind, name: str) -> dict[str, Any]:
    """Return every field as it is in force. Raises ConfigError where there is none of that name."""
    written_document(documents, kind, name)
    document = effective(documents, name) if kind == "tasks" else experiment_of(documents, name)
    return document.model_dump(mode="json")


def sourced_fields(documents: Documents, kind: Kind, name: str) -> tuple[SourcedField, ...]:
    """Return every field with where it comes from, in the schema's order.

    Raises ConfigError where there is no such document.
    """
    own = migrated(kind, written_document(documents, kind, name))
    inherited: Mapping[str, Any] = {}
    if kind == "tasks" and name != DEFAULT_TASK:
        default = migrated("tasks", documents.tasks.get(DEFAULT_TASK, {}))
        inherited = {field: value for field, value in default.items() if field not in OWN_FIELDS}
    leaves = _leaves((), effective_document(documents, kind, name))
    return tuple(SourcedField(".".join(path), value, _origin(path, own, inherited)) for path, value in leaves)


def _leaves(path: tuple[str, ...], value: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from _leaves((*path, name), inner)
    else:
        yield path, value


def _origin(path: tuple[str, ...], own: Mapping[str, Any], inherited: Mapping[str, Any]) -> Origin:
    match _says(path, own):
        case "value":
            return "written"
        case "null":
            return "schema"  # what is inherited is taken away
        case _:
            return "default" if _says(path, inherited) == "value" else "schema"


def _says(path: tuple[str, ...], document: Mapping[str, Any]) -> Literal["value", "null", "nothing"]:
    found: Any = document
    for name in path:
        if not isinstance(found, Mapping) or name not in found:
            return "nothing"
        found = found[name]
        if found is None:
            return "null"
    return "value"
