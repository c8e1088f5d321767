"""Inheritance: what a task leaves out it has from the task ``default``, field by field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from gateway.errors import ConfigError
from gateway.store.document import SCHEMA_VERSION, TaskDocument
from gateway.store.documents import Documents
from gateway.store.migrate import is_from_the_future, migrated

DEFAULT_TASK = "default"
"""Serves where a request names no task, and is what the others inherit from."""
OWN_FIELDS = frozenset({"task_type", "description", "schema_version", "calibration"})
"""They say something of one task alone and are never inherited."""


def laid_over(base: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``base`` with ``own`` in its place: sections field by field, lists and values as a whole.

    A null in ``own`` takes the field away, so that the schema's own default is in force.
    """
    merged = dict(base)
    for name, value in own.items():
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, Mapping):
            inherited = merged.get(name)
            merged[name] = laid_over(inherited if isinstance(inherited, Mapping) else {}, value)
        else:
            merged[name] = value
    return merged


def effective_fields(default: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a task that inherits from ``default``; both in today's schema version."""
    inherited = {name: value for name, value in default.items() if name not in OWN_FIELDS}
    return laid_over(laid_over({}, inherited), own)


def effective(documents: Documents, task: str) -> TaskDocument:
    """Return the task as requests meet it; unknown fields are passed over, old ones are migrated.

    Raises ConfigError where there is no such task, or where it and what it inherits make no valid one.
    """
    if task not in documents.tasks:
        raise ConfigError(f"there is no task {task!r}", file="tasks")
    default = migrated("tasks", documents.tasks.get(DEFAULT_TASK, {}))
    own = migrated("tasks", documents.tasks[task])
    fields = effective_fields({} if task == DEFAULT_TASK else default, own)
    if is_from_the_future(own):
        fields["schema_version"] = SCHEMA_VERSION
    try:
        document = TaskDocument.model_validate(fields, extra="ignore")
    except ValidationError as error:
        raise ConfigError(first_problem(error), file=f"tasks/{task}") from error
    if document.task_type != task:
        raise ConfigError(f"task_type: is {document.task_type!r}", file=f"tasks/{task}")
    return document


def first_problem(error: ValidationError) -> str:
    """Return the first of pydantic's errors as ``path: what is wrong``."""
    first = error.errors(include_url=False, include_input=False)[0]
    path = ".".join(str(part) for part in first["loc"])
    message = first["msg"].removeprefix("Value error, ")
    return f"{path}: {message}" if path else message
