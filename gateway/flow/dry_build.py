"""Builds what a turn would build of a configuration, before any turn does."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import ValidationError

from gateway.errors import ConfigError
from gateway.flow.controls import build_controls
from gateway.store.document import TaskDocument
from gateway.store.lineage import first_problem
from gateway.store.snapshot import Snapshot
from worker.protocol import TraceControls

_THEME = tuple(f"word{n}" for n in range(64))
"""As many words as a task may take from the context."""


def dry_build(snapshot: Snapshot) -> None:
    """Build the controls of every task and arm. Raises ConfigError where a turn's would fail."""
    for place, task in _parts(snapshot):
        try:
            build_controls(task, _THEME, TraceControls(turn_id="dry-build"))
        except ValidationError as error:
            raise ConfigError(f"the controls cannot be built: {first_problem(error)}", file=place) from error


def _parts(snapshot: Snapshot) -> Iterator[tuple[str, TaskDocument]]:
    for name, task in snapshot.tasks.items():
        yield f"tasks/{name}", task
    for experiment in snapshot.experiments:
        for arm in experiment.arms:
            if arm.task is not None and arm.task in snapshot.tasks:
                yield f"experiments/{experiment.id}", snapshot.tasks[arm.task]
