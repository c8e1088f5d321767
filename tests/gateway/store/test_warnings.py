from __future__ import annotations

from typing import Any

from gateway.store.documents import Documents
from gateway.store.snapshot import Snapshot, build_snapshot
from gateway.store.warnings import warnings_of

CALIBRATION = {"model": "small", "temperature": 0.4, "s_mean": 0.1}


def snapshot(**fields: Any) -> Snapshot:
    task = {"task_type": "default", "adaptive": {}, "calibration": CALIBRATION, **fields}
    return build_snapshot(Documents({"default": task}, {}), 1.0)


def test_a_calibration_at_the_tasks_own_temperature_and_model_is_silent() -> None:
    assert warnings_of(snapshot(sampling={"temperature": 0.4}), ["small", "large"]) == ()


def test_another_temperature_is_told_with_both_numbers() -> None:
    assert warnings_of(snapshot(sampling={"temperature": 0.7})) == (
        "The task 'default' was calibrated at temperature 0.4 and runs at 0.7.",
    )
    assert "runs at 1." in warnings_of(snapshot())[0]  # where the task says none


def test_another_model_is_told_where_the_models_are_known() -> None:
    found = snapshot(sampling={"temperature": 0.4})
    assert warnings_of(found) == ()
    assert warnings_of(found, ["large"]) == (
        "The task 'default' was calibrated with the model 'small'; served is large.",
    )


def test_an_inherited_temperature_counts() -> None:
    tasks = {
        "default": {"task_type": "default", "sampling": {"temperature": 0.9}},
        "t": {"task_type": "t", "calibration": CALIBRATION},
    }
    assert "'t'" in warnings_of(build_snapshot(Documents(tasks, {}), 1.0))[0]
