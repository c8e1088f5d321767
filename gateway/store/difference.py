"""What differs between two configurations, field by field."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gateway.store.centre import FieldChange
from gateway.store.documents import Documents
from gateway.store.migrate import all_migrated

_ABSENT: Any = object()


def diff(before: Documents, after: Documents) -> tuple[FieldChange, ...]:
    """Return every field that was written, taken out or changed, by path, ascending.

    Both are looked at in today's schema version, so a rename by a migration is no difference. A list counts
    as one value.
    """
    one, other = _fields(before), _fields(after)
    return tuple(
        FieldChange(path, one.get(path), other.get(path))
        for path in sorted(one.keys() | other.keys())
        if one.get(path, _ABSENT) != other.get(path, _ABSENT)
    )


def _fields(documents: Documents) -> dict[str, Any]:
    today = all_migrated(documents)
    return dict([*_flat("tasks", today.tasks), *_flat("experiments", today.experiments)])


def _flat(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from _flat(f"{path}.{name}", inner)
    elif not isinstance(value, Mapping) or path.count(".") > 1:
        yield path, value
