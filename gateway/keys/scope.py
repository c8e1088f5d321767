"""What a key may be for."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

Scope: TypeAlias = Literal[
    "infer",
    "prune",
    "feedback",
    "config:read",
    "config:write",
    "turns:read",
    "turns:write",
    "experiments:read",
    "admin",
]
"""``infer``: completions, and whatever belongs to them. ``admin``: all of it."""

EVERY: frozenset[Scope] = frozenset(get_args(Scope))
OPEN: frozenset[Scope] = frozenset()
"""What needs no key at all."""


def opens(held: frozenset[Scope], wanted: frozenset[Scope]) -> bool:
    """Whether who holds ``held`` may do what any one of ``wanted`` allows."""
    return "admin" in held or not held.isdisjoint(wanted)
