"""One spelling of what was written: 1 and 1.0 are the same number, and a default is not written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.store.document import ExperimentDocument, TaskDocument
from gateway.store.documents import Documents
from gateway.store.lineage import effective
from gateway.store.migrate import all_migrated
from gateway.store.snapshot import experiment_of


def in_todays_schema(documents: Documents) -> Documents:
    """Return stored documents as they would be written today: migrated, without what no field is known for.

    Raises ConfigError where one of them is not valid.
    """
    today = all_migrated(documents)
    return Documents(
        {name: spelled_task(own, effective(documents, name)) for name, own in today.tasks.items()},
        {name: spelled_experiment(experiment_of(documents, name)) for name in today.experiments},
    )


def spelled_task(own: Mapping[str, Any], task: TaskDocument) -> dict[str, Any]:
    """Return the fields that ``own`` has, with the values that they have in the effective ``task``."""
    return _spelled(own, task.model_dump(mode="json", exclude_unset=True))


def spelled_experiment(experiment: ExperimentDocument) -> dict[str, Any]:
    """Return the fields that were set."""
    return experiment.model_dump(mode="json", exclude_unset=True)


def _spelled(own: Mapping[str, Any], valid: Mapping[str, Any]) -> dict[str, Any]:
    spelled: dict[str, Any] = {}
    for name, value in own.items():
        if value is None:
            spelled[name] = None  # "not what is inherited" has to be kept
        elif name in valid:
            inner = valid[name]
            is_section = isinstance(value, Mapping) and isinstance(inner, Mapping)
            spelled[name] = _spelled(value, inner) if is_section else inner
    return spelled
