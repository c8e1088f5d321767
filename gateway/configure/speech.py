"""How the commands speak: lines for people, JSON for programs, and an exit status."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, TypeAlias

import orjson

from gateway.errors import (
    CentreUnavailable,
    CommandError,
    ConfigError,
    PublishConflict,
    PublishRefused,
    UnknownVersion,
)
from gateway.stack.environment import described
from gateway.store.centre import FieldChange

Tell: TypeAlias = Callable[[Any, Iterable[str]], None]
"""Says a result: as data to programs, as lines to people."""

FINE, FOUND = 0, 1
"""The exit status: 1 where something is invalid, differs or is refused. CommandError is 2."""


def answered(work: Callable[[], int]) -> int:
    """Run ``work``; what is wrong with the configuration is printed, and 1 is returned.

    Raises CommandError where the command cannot run: the store is away, or there is no such version.
    """
    try:
        return work()
    except (CentreUnavailable, UnknownVersion) as error:
        raise CommandError(described(error)) from error
    except PublishConflict as error:
        print(f"conflict: {described(error)}")
    except PublishRefused as error:
        print(f"refused: {described(error)}")
    except ConfigError as error:
        print(f"invalid: {described(error)}")
    return FOUND


def tell_people(content: Any, lines: Iterable[str]) -> None:
    """Print the lines; ``content`` is the same for programs."""
    for line in lines:
        print(line)


def tell_programs(content: Any, lines: Iterable[str]) -> None:
    """Print ``content``, which may be a dataclass or hold some, as indented JSON."""
    print(orjson.dumps(content, option=orjson.OPT_INDENT_2).decode())


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a line a row, with the cells of a column under each other."""
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def change_lines(changes: Sequence[FieldChange]) -> list[str]:
    """``tasks.rag_qa.gravity_strength: 1.2 -> 8``; a document that comes or goes is one line."""
    whole = {_document_of(change.path): change for change in changes if _names_document(change.path)}
    lines = [f"{name}: {'added' if change.before is None else 'removed'}" for name, change in whole.items()]
    lines += [
        f"{change.path}: {value_text(change.before)} -> {value_text(change.after)}"
        for change in changes
        if _document_of(change.path) not in whole
    ]
    return sorted(lines)


def _document_of(path: str) -> str:
    return ".".join(path.split(".")[:2])


def _names_document(path: str) -> bool:
    """Whether it is the field that every document of its kind has, and that never changes in one."""
    return path.partition(".")[0] + path[path.rindex(".") :] in ("tasks.task_type", "experiments.id")


def value_text(value: Any) -> str:
    """The value as YAML on one line would have it; what is not there is ``–``."""
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:g}"
    return value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)


def version_text(number: int, sha: str) -> str:
    """A version as people read it: number, where it has one, and the start of its sha."""
    return f"version {number} ({sha[:12]})" if number else f"sha {sha[:12]}"


def moment_text(unix_time: float) -> str:
    """Day and time of this machine's zone, to the second."""
    return datetime.fromtimestamp(unix_time).strftime("%Y-%m-%d %H:%M:%S")


def age_text(age_s: float) -> str:
    """How long, in the largest unit that leaves two of it or more."""
    for unit, seconds in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if age_s >= 2 * seconds:
            return f"{age_s / seconds:.0f} {unit}"
    return f"{age_s:.0f} s"
