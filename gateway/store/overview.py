"""A version in short: a row for each task and each experiment."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.store.centre import Version
from gateway.store.document import ExperimentDocument, Keep, TaskDocument
from gateway.store.snapshot import build_snapshot
from gateway.store.warnings import warnings_of


@dataclass(frozen=True, slots=True)
class TaskRow:
    """What is in force of a task; None is "not set"."""

    name: str
    description: str
    gravity_strength: float
    k_min: int | None
    k_max: int | None
    temperature: float | None
    keep: Keep | None
    """None where the task prunes nothing."""


@dataclass(frozen=True, slots=True)
class ExperimentRow:
    id: str
    version: int
    is_active: bool
    tasks: tuple[str, ...]
    coverage: float
    arms: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Overview:
    number: int
    sha: str
    tasks: tuple[TaskRow, ...]
    experiments: tuple[ExperimentRow, ...]
    warnings: tuple[str, ...]


def overview(version: Version) -> Overview:
    """Return the version in short. Raises ConfigError where its documents do not go together."""
    snapshot = build_snapshot(version.documents, loaded_at=0.0)
    tasks = tuple(_task(name, task) for name, task in sorted(snapshot.tasks.items()))
    experiments = tuple(map(_experiment, snapshot.experiments))
    return Overview(version.number, version.sha, tasks, experiments, warnings_of(snapshot))


def _task(name: str, task: TaskDocument) -> TaskRow:
    return TaskRow(
        name,
        task.description,
        task.gravity_strength,
        task.adaptive.k_min if task.adaptive else None,
        task.adaptive.k_max if task.adaptive else None,
        task.sampling.temperature,
        task.context.keep if task.context.pruning else None,
    )


def _experiment(experiment: ExperimentDocument) -> ExperimentRow:
    arms = tuple(arm.name for arm in experiment.arms)
    return ExperimentRow(
        experiment.id, experiment.version, experiment.is_active, experiment.tasks, experiment.coverage, arms
    )
