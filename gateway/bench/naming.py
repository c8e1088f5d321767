"""Arms of a benchmark, by the names that its user gives."""

from __future__ import annotations

from collections.abc import Iterable

from gateway.errors import CommandError


def names_in(text: str, known: Iterable[str]) -> frozenset[str]:
    """Return the arms' names in ``text``, comma-separated. Raises CommandError for one that is not known."""
    names = tuple(known)
    wanted = [name.strip() for name in text.split(",")]
    for name in wanted:
        if name not in names:
            raise CommandError(f"There is no arm {name!r}; there are {', '.join(names)}.")
    return frozenset(wanted)
