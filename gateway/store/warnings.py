"""What is accepted and has to be known: a calibration that was taken elsewhere."""

from __future__ import annotations

from collections.abc import Collection

from gateway.store.document import TaskDocument
from gateway.store.snapshot import Snapshot

DEFAULT_TEMPERATURE = 1.0
"""OpenAI's, where neither the client nor the task says one."""


def warnings_of(snapshot: Snapshot, models: Collection[str] = ()) -> tuple[str, ...]:
    """Return one sentence for each task whose entropies were measured under other conditions than it runs in.

    H moves with the temperature and with the model, and s_low, s_high and the buckets with it. ``models`` are
    those that are served; where it is empty nothing is said of models.
    """
    sentences = []
    for name, task in sorted(snapshot.tasks.items()):
        sentences += _of_temperature(name, task)
        if models:
            sentences += _of_models(name, task, models)
    return tuple(sentences)


def temperature_of(task: TaskDocument) -> float:
    """Return the temperature of a request that says none."""
    return DEFAULT_TEMPERATURE if task.sampling.temperature is None else task.sampling.temperature


def _of_temperature(name: str, task: TaskDocument) -> list[str]:
    temperature = temperature_of(task)
    if task.calibration is None or abs(task.calibration.temperature - temperature) <= 1e-9:
        return []
    return [
        f"The task {name!r} was calibrated at temperature {task.calibration.temperature:g} and runs at "
        f"{temperature:g}."
    ]


def _of_models(name: str, task: TaskDocument, models: Collection[str]) -> list[str]:
    if task.calibration is None or task.calibration.model in models:
        return []
    served = ", ".join(sorted(models))
    return [
        f"The task {name!r} was calibrated with the model {task.calibration.model!r}; served is {served}."
    ]
