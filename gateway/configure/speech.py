"""How the commands speak: lines for people, JSON for programs, and an exit status."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

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


def print_json(content: Any) -> None:
    """Print ``content``, which may be a dataclass or hold some, as indented JSON."""
    print(orjson.dumps(content, option=orjson.OPT_INDENT_2).decode())


def change_line(change: FieldChange) -> str:
    """``tasks.rag_qa.gravity_strength: 1.2 -> 8``."""
    return f"{change.path}: {value_text(change.before)} -> {value_text(change.after)}"


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
