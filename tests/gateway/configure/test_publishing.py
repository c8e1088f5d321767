"""``gravity config publish | rollback | export | import``, on a folder and in Redis."""

from __future__ import annotations

import getpass
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gateway.cli import app
from gateway.store.watch import ConfigStore

Gravity = Callable[..., Any]
SEED = {
    "task_type": "quest",
    "core_semantics": ["dragon", "sword"],
    "gravity_strength": 0.5,
    "penalize": ["tax"],
    "decay_after_steps": 40,
}


@pytest.fixture
def story(tmp_path: Path) -> Callable[[float], Path]:
    def write(strength: float) -> Path:
        path = tmp_path / f"story-{strength:g}.yaml"
        path.write_text(
            f"task_type: story\ngravity_strength: {strength}\nadaptive: {{k_min: 2, k_max: 20}}\n"
        )
        return path

    return write


def test_a_file_is_published_into_what_is_there(
    gravity: Gravity, folder: Path, story: Callable[[float], Path]
) -> None:
    published = gravity("publish", story(2), "--why", "stronger")
    assert published.status == 0
    snapshot = ConfigStore.open(folder).snapshot
    assert snapshot.tasks["story"].gravity_strength == 2
    assert published.lines[0] == "tasks.story.gravity_strength: 1.2 -> 2"
    assert published.lines[1].startswith(f"published version 1 ({snapshot.sha[:12]}) in the place of ")
    assert gravity("history", "--json").json()[0]["who"] == getpass.getuser()


def test_the_seeds_json_is_a_document(gravity: Gravity, folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "quest.json"
    path.write_text(json.dumps(SEED))
    added = gravity("publish", path, "--why", "a new kind of question")
    assert added.lines[0] == "tasks.quest: added"
    quest = ConfigStore.open(folder).snapshot.tasks["quest"]
    assert (quest.core_semantics, quest.decay_after_steps) == (("dragon", "sword"), 40)
    assert quest.sampling.temperature == 0.7  # from default
    removed = gravity("publish", "--remove", "tasks.quest", "--why", "not needed")
    assert removed.lines[0] == "tasks.quest: removed"
    assert "quest" not in ConfigStore.open(folder).snapshot.tasks
    assert gravity("publish", "--remove", "tasks.quest", "--why", "again").status == 1


def test_nothing_to_change_is_said(gravity: Gravity, story: Callable[[float], Path]) -> None:
    found = gravity("publish", story(1.2), "--why", "the same")
    assert (found.status, found.lines[0].split(":")[0]) == (0, "nothing to change")
    assert gravity("history").lines == ["nothing was published yet"]


def test_a_dry_run_writes_nothing(gravity: Gravity, folder: Path, story: Callable[[float], Path]) -> None:
    before = ConfigStore.open(folder).snapshot.sha
    tried = gravity("publish", story(2), "--why", "stronger", "--dry-run")
    assert tried.lines[0] == "tasks.story.gravity_strength: 1.2 -> 2"
    assert "nothing is published" in tried.printed
    assert ConfigStore.open(folder).snapshot.sha == before


def test_a_jump_is_refused_with_the_ways_on_and_goes_by_force_or_share(
    gravity: Gravity, folder: Path, story: Callable[[float], Path]
) -> None:
    refused = gravity("publish", story(8), "--why", "much stronger")
    assert refused.status == 1
    assert refused.printed.startswith("refused: tasks.story.gravity_strength: 1.2 -> 8")
    assert "--force" in refused.printed
    assert "--share" in refused.printed
    shared = gravity("publish", story(8), "--why", "much stronger", "--share", "0.1")
    assert shared.lines[:2] == ["experiments.story-candidate: added", "tasks.story_candidate: added"]
    assert "10% of the traffic" in shared.printed
    snapshot = ConfigStore.open(folder).snapshot
    assert (snapshot.tasks["story"].gravity_strength, snapshot.tasks["story_candidate"].gravity_strength) == (
        1.2,
        8,
    )
    for_all = gravity("publish", story(8), "--why", "the share did well")
    assert for_all.status == 0
    assert for_all.lines[:3] == [
        "experiments.story-candidate: removed",
        "tasks.story.gravity_strength: 1.2 -> 8",
        "tasks.story_candidate: removed",
    ]
    assert gravity("publish", story(1), "--why", "back", "--force").status == 0
    assert gravity("history", "--json").json()[0]["is_forced"]


def test_a_task_of_a_running_experiment_gets_no_share(gravity: Gravity, folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "default.yaml"
    path.write_text("task_type: default\ngravity_strength: 0.4\nsampling: {temperature: 0.7}\n")
    refused = gravity("publish", path, "--why", "some gravity", "--share", "0.1")
    assert refused.status == 1
    assert "in the active experiment 'gain' already" in refused.printed


def test_a_typo_is_not_published(gravity: Gravity, folder: Path, tmp_path: Path) -> None:
    before = ConfigStore.open(folder).snapshot.sha
    path = tmp_path / "story.yaml"
    path.write_text("task_type: story\ngravity_strenght: 2\n")
    invalid = gravity("publish", path, "--why", "stronger")
    assert invalid.status == 1
    assert invalid.printed.startswith(f"invalid: {path}:2: gravity_strenght")
    assert ConfigStore.open(folder).snapshot.sha == before


def test_a_warning_of_a_calibration_taken_elsewhere_is_shown_and_stays(
    gravity: Gravity, tmp_path: Path
) -> None:
    path = tmp_path / "story.yaml"
    path.write_text(
        "task_type: story\ngravity_strength: 1.2\nadaptive: {k_min: 2, k_max: 20}\n"
        "calibration: {model: m, temperature: 0.2, s_mean: 0.1}\n"
    )
    published = gravity("publish", path, "--why", "calibrated")
    warning = "warning: The task 'story' was calibrated at temperature 0.2 and runs at 0.7."
    assert published.status == 0
    assert warning in published.lines
    assert warning in [line.strip() for line in gravity("status").lines]


def test_a_head_that_moved_is_a_conflict(gravity: Gravity, story: Callable[[float], Path]) -> None:
    sha = gravity("list", "--json").json()["sha"]
    assert gravity("publish", story(1.5), "--why", "one", "--expect", sha[:10]).status == 0
    late = gravity("publish", story(1.7), "--why", "two", "--expect", sha)
    assert (late.status, late.printed.startswith("conflict: ")) == (1, True)


def test_a_reason_is_required(story: Callable[[float], Path]) -> None:
    refused = CliRunner().invoke(app, ["config", "publish", str(story(1.5))])
    assert refused.exit_code == 2
    assert "--why" in refused.output


def test_an_empty_namespace_begins_with_the_folder(
    fleet: Gravity, folder: Path, story: Callable[[float], Path]
) -> None:
    assert fleet("list").status == 2
    first = fleet("publish", "--why", "the first")
    assert first.status == 0
    assert first.lines[-1].startswith("published version 1 (")
    assert fleet("list", "--json").json()["sha"] == ConfigStore.open(folder).snapshot.sha
    assert fleet("diff").status == 0
    assert fleet("publish", story(2), "--why", "stronger").status == 0
    assert fleet("diff").lines == ["tasks.story.gravity_strength: 2 -> 1.2"]
    assert fleet("rollback", "-1", "--why", "too strong", "--json").json()["number"] == 3
    assert [change["kind"] for change in fleet("history", "--json").json()] == [
        "rollback",
        "publish",
        "publish",
    ]
    status = fleet("status")
    assert (status.status, status.lines[-1]) == (0, "no gateway has reported")


def test_a_namespace_goes_as_one_file_into_another_store(
    fleet: Gravity, run: Gravity, folder: Path, tmp_path: Path, story: Callable[[float], Path]
) -> None:
    assert fleet("publish", "--why", "the first").status == 0
    assert fleet("publish", story(2), "--why", "stronger").status == 0
    file = tmp_path / "all.json"
    exported = fleet("export", file)
    assert exported.status == 0
    assert exported.printed.startswith(f"{file}: 2 versions, head ")
    elsewhere = ("--store", "files", "--config", folder)
    assert run("import", file, "--why", "moved", *elsewhere).status == 0
    assert (
        run("show", "story", "--json", *elsewhere).json()["documents"]["tasks.story"]["effective"][
            "gravity_strength"
        ]
        == 2
    )
    assert run("publish", story(0.5), "--why", "far", "--force", *elsewhere).status == 0
    jump = run("import", file, "--why", "moved", *elsewhere)
    assert (jump.status, jump.printed.startswith("refused: ")) == (1, True)
    assert run("import", file, "--why", "moved", "--force", *elsewhere).status == 0
    damaged = json.loads(file.read_text())
    sha = damaged["head"]["sha"]
    damaged["snapshots"][sha] = damaged["snapshots"][sha].replace("2.0", "9.0")
    file.write_text(json.dumps(damaged))
    refused = run("import", file, "--why", "moved", *elsewhere)
    assert refused.status == 1
    assert "damaged" in refused.printed
    assert run("import", tmp_path / "none.json", "--why", "x", *elsewhere).status == 2


def test_unusable_settings_are_no_traceback(run: Gravity, folder: Path) -> None:
    bad = run("list", "--store", "redis", "--namespace", "a b", "--config", folder)
    assert (bad.status, "config_namespace" in bad.printed) == (2, True)
