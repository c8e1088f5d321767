"""One immutable configuration: all documents together, checked against each other, named by their sha256."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from gateway.errors import ConfigError
from gateway.store.backend import SourceFile
from gateway.store.document import ExperimentDocument, TaskDocument
from gateway.store.source import parse
from gateway.store.versions import content_sha

DEFAULT_TASK = "default"
"""Serves where a request names no task."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a request keeps from its beginning to its end, whatever is published meanwhile."""

    sha: str
    """sha256 of the canonical content."""
    tasks: Mapping[str, TaskDocument]
    """By task_type."""
    experiments: tuple[ExperimentDocument, ...]
    """By id, ascending."""
    loaded_at: float
    """Unix time, seconds."""


def build_snapshot(files: Sequence[SourceFile], loaded_at: float) -> Snapshot:
    """Parse and check ``files``; either all of them are good or nothing is built. Raises ConfigError."""
    tasks = _tasks([file for file in files if file.kind == "tasks"])
    experiments = _experiments([file for file in files if file.kind == "experiments"])
    if DEFAULT_TASK not in tasks:
        raise ConfigError(
            f"there is no task {DEFAULT_TASK!r}, which serves where a request names none", file="tasks"
        )
    _check_experiments(tasks, experiments)
    # What was written, not what the defaults made of it: the same files have the same sha in every version.
    content = {
        "tasks": {name: task.model_dump(mode="json", exclude_unset=True) for name, task in tasks.items()},
        "experiments": {
            document.id: document.model_dump(mode="json", exclude_unset=True) for _, document in experiments
        },
    }
    by_id = tuple(sorted((document for _, document in experiments), key=lambda document: document.id))
    return Snapshot(content_sha(content), MappingProxyType(tasks), by_id, loaded_at)


def _tasks(files: Sequence[SourceFile]) -> dict[str, TaskDocument]:
    tasks: dict[str, TaskDocument] = {}
    for file in files:
        task = parse(file, TaskDocument)
        if task.task_type in tasks:
            raise ConfigError(f"task_type: there is another task {task.task_type!r}", file=file.name)
        tasks[task.task_type] = task
    return tasks


def _experiments(files: Sequence[SourceFile]) -> list[tuple[str, ExperimentDocument]]:
    """Return (file name, document) of each."""
    experiments = [(file.name, parse(file, ExperimentDocument)) for file in files]
    for (_, one), (name, other) in itertools.combinations(experiments, 2):
        if one.id == other.id:
            raise ConfigError(f"id: there is another experiment {one.id!r}", file=name)
    return experiments


def _check_experiments(
    tasks: Mapping[str, TaskDocument], experiments: Sequence[tuple[str, ExperimentDocument]]
) -> None:
    for name, experiment in experiments:
        for task in experiment.tasks:
            if task not in tasks:
                raise ConfigError(f"tasks: there is no task {task!r}", file=name)
        for index, arm in enumerate(experiment.arms):
            if arm.task is not None and arm.task not in tasks:
                raise ConfigError(f"arms.{index}.task: there is no task {arm.task!r}", file=name)
    active = [(name, experiment) for name, experiment in experiments if experiment.is_active]
    for (_, one), (name, other) in itertools.combinations(active, 2):
        if shared := _shared_tasks(one, other):
            raise ConfigError(f"tasks: {shared} is in the active experiment {one.id!r} already", file=name)


def _shared_tasks(one: ExperimentDocument, other: ExperimentDocument) -> str:
    """Name what two experiments would both decide about; empty where they are apart."""
    if not one.tasks or not other.tasks:
        return "every task" if not one.tasks and not other.tasks else ", ".join(one.tasks or other.tasks)
    return ", ".join(sorted(set(one.tasks) & set(other.tasks)))
