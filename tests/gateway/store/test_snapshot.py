from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from gateway.errors import ConfigError
from gateway.store.backend import SourceFile
from gateway.store.editing import read_documents
from gateway.store.snapshot import Snapshot, build_snapshot
from gateway.store.watch import ConfigStore

CONFIGS = Path(__file__).resolve().parents[3] / "configs"
ARMS = "arms: [{name: treatment, start: 0.0}, {name: control, start: 0.5%s}]\n"


def task(name: str, rest: str = "") -> SourceFile:
    return SourceFile("tasks", f"tasks/{name}.yaml", f"task_type: {name}\n{rest}".encode())


def experiment(name: str, rest: str = "", arm: str = "") -> SourceFile:
    text = f"id: {name}\nenrol_seed: a\narm_seed: b\n{ARMS % arm}{rest}"
    return SourceFile("experiments", f"experiments/{name}.yaml", text.encode())


def build(*files: SourceFile) -> Snapshot:
    return build_snapshot(read_documents((task("default"), *files)), 1.0)


def refused(*files: SourceFile) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        build_snapshot(read_documents(files), 1.0)
    return caught.value


def test_the_shipped_configuration_is_valid_and_calibrated() -> None:
    snapshot = ConfigStore.open(CONFIGS).snapshot
    assert set(snapshot.tasks) == {
        *("default", "rag_qa", "code_generation", "structured_output", "open_writing", "summarisation"),
    }
    assert all(document.calibration is not None for document in snapshot.tasks.values())
    assert {arm.name for each in snapshot.experiments for arm in each.arms} == {"treatment", "control"}


def test_the_sha_is_of_the_content_and_not_of_its_writing() -> None:
    one = build(task("other", "gravity_strength: 1\npenalize: [a, b]\n"), experiment("e"))
    other = build(
        experiment("e"), task("other", "# a comment\npenalize:\n  - a\n  - b\ngravity_strength: 1.0\n")
    )
    assert one.sha == other.sha
    assert one.sha != build(task("other", "gravity_strength: 1.1\n"), experiment("e")).sha


def test_a_snapshot_cannot_be_changed() -> None:
    snapshot = build()
    with pytest.raises(TypeError):
        snapshot.tasks["default"] = snapshot.tasks["default"]  # type: ignore[index]
    with pytest.raises(dataclasses.FrozenInstanceError):
        snapshot.sha = ""  # type: ignore[misc]


def test_there_is_a_default_task() -> None:
    assert "default" in refused(task("other")).message


def test_a_task_or_an_experiment_stands_once() -> None:
    again = SourceFile("tasks", "tasks/again.yaml", b"task_type: default\n")
    assert refused(task("default"), again).file == "tasks/again.yaml"
    twice = SourceFile("experiments", "experiments/twice.yaml", experiment("e").content)
    assert refused(task("default"), experiment("e"), twice).file == "experiments/twice.yaml"


def test_experiments_name_tasks_that_exist() -> None:
    error = refused(task("default"), experiment("e", "tasks: [nowhere]\n"))
    assert error.file == "experiments/e"
    assert "nowhere" in error.message
    error = refused(task("default"), experiment("e", arm=", task: nowhere"))
    assert "arms.1.task" in error.message
    assert build(experiment("e", "tasks: [default]\n", ", task: default")).experiments[0].id == "e"


def test_a_task_is_in_one_active_experiment_at_most() -> None:
    one, other = experiment("one", "tasks: [default]\n"), experiment("two", "tasks: [default]\n")
    assert "one" in refused(task("default"), one, other).message
    everywhere = experiment("all")
    assert "default" in refused(task("default"), one, everywhere).message
    assert "every task" in refused(task("default"), everywhere, experiment("all-too")).message
    ended = experiment("two", "tasks: [default]\nis_active: false\n")
    assert len(build(one, ended).experiments) == 2
    apart = experiment("two", "tasks: [other]\n")
    assert len(build(task("other"), one, apart).experiments) == 2
