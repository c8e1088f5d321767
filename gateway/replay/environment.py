"""What a turn was computed with, compared with what it is replayed with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

UNIMPORTANT = frozenset({"level", "slots", "positions"})
"""How the gateway speaks to the worker and how much fits into it move no token."""


def environment_changes(then: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what differs, as ``name then -> now``; parts of parts by dotted names."""
    changes: list[str] = []
    for name in sorted((then.keys() | now.keys()) - UNIMPORTANT):
        before, after = then.get(name), now.get(name)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            changes += [f"{name}.{each}" for each in environment_changes(before, after)]
        elif before != after:
            changes.append(f"{name} {before} -> {after}")
    return tuple(changes)
