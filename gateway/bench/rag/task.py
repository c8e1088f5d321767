"""The task of the measured requests: ``rag_qa`` as it is configured here."""

from __future__ import annotations

from pathlib import Path

import orjson

from gateway.errors import CommandError
from gateway.stack.environment import config_folder
from gateway.store.document import TaskDocument
from gateway.store.watch import ConfigStore

TASK = "rag_bench"
LIKE = "rag_qa"


def write_task(folder: Path) -> TaskDocument:
    """Write the task, for requests that name none as well, and return it. Raises CommandError."""
    task = ConfigStore.open(config_folder()).snapshot.tasks.get(LIKE)
    if task is None:
        raise CommandError(f"{config_folder()} has no task {LIKE!r}")
    fields = task.model_dump(mode="json", exclude_unset=True)
    fields.pop("calibration", None)
    (folder / "tasks").mkdir(parents=True)
    for name in (TASK, "default"):
        (folder / "tasks" / f"{name}.yaml").write_bytes(orjson.dumps(fields | {"task_type": name}))
    return task
