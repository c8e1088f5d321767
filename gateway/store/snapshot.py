"""One immutable configuration: all documents together, checked against each other, named by their sha256."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from pydantic import ValidationError

from gateway.errors import ConfigError
from gateway.store.document import SCHEMA_VERSION, ExperimentDocument, TaskDocument
from gateway.store.documents import Documents
from gateway.store.lineage import DEFAULT_TASK, effective, first_problem
from gateway.store.migrate import is_from_the_future, migrated


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a request keeps from its beginning to its end, whatever is published meanwhile."""

    sha: str
    """sha256 of the documents as they were written."""
    tasks: Mapping[str, TaskDocument]
    """By task_type; each with what it inherits from ``default``."""
    experiments: tuple[ExperimentDocument, ...]
    """By id, ascending."""
    loaded_at: float
    """Unix time, seconds."""


def build_snapshot(documents: Documents, loaded_at: float) -> Snapshot:
    """Parse ``documents`` tolerantly and check them against each other: all of them are good or none serves.

    Raises ConfigError, with ``tasks/NAME`` or ``experiments/ID`` for its file.
    """
    if DEFAULT_TASK not in documents.tasks:
        raise ConfigError(
            f"there is no task {DEFAULT_TASK!r}, which serves where a request names none", file="tasks"
        )
    tasks = {name: effective(documents, name) for name in sorted(documents.tasks)}
    experiments = tuple(experiment_of(documents, name) for name in sorted(documents.experiments))
    _check_experiments(tasks, experiments)
    return Snapshot(documents.sha, MappingProxyType(tasks), experiments, loaded_at)


def experiment_of(documents: Documents, experiment_id: str) -> ExperimentDocument:
    """Return one experiment; unknown fields are passed over. Raises ConfigError where it is not valid."""
    place = f"experiments/{experiment_id}"
    fields = migrated("experiments", documents.experiments[experiment_id])
    if is_from_the_future(fields):
        fields["schema_version"] = SCHEMA_VERSION
    try:
        experiment = ExperimentDocument.model_validate(fields, extra="ignore")
    except ValidationError as error:
        raise ConfigError(first_problem(error), file=place) from error
    if experiment.id != experiment_id:
        raise ConfigError(f"id: is {experiment.id!r}", file=place)
    return experiment


def _check_experiments(tasks: Mapping[str, TaskDocument], experiments: Sequence[ExperimentDocument]) -> None:
    # One that has ended may name what is gone since: a candidate that was rolled back, with its task.
    active = [experiment for experiment in experiments if experiment.is_active]
    for experiment in active:
        for task in experiment.tasks:
            if task not in tasks:
                raise ConfigError(f"tasks: there is no task {task!r}", file=f"experiments/{experiment.id}")
        for index, arm in enumerate(experiment.arms):
            if arm.task is not None and arm.task not in tasks:
                raise ConfigError(
                    f"arms.{index}.task: there is no task {arm.task!r}", file=f"experiments/{experiment.id}"
                )
    for one, other in itertools.combinations(active, 2):
        if shared := _shared_tasks(one, other):
            raise ConfigError(
                f"tasks: {shared} is in the active experiment {one.id!r} already",
                file=f"experiments/{other.id}",
            )


def _shared_tasks(one: ExperimentDocument, other: ExperimentDocument) -> str:
    """Name what two experiments would both decide about; empty where they are apart."""
    if not one.tasks or not other.tasks:
        return "every task" if not one.tasks and not other.tasks else ", ".join(one.tasks or other.tasks)
    return ", ".join(sorted(set(one.tasks) & set(other.tasks)))
