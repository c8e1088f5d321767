"""``gravity config list | show | diff | history | status``."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from gateway.store.watch import ConfigStore

Gravity = Callable[..., Any]


def test_list_shows_the_documents_in_force(gravity: Gravity, folder: Path) -> None:
    listed = gravity("list")
    assert listed.status == 0
    rows = [line.split() for line in listed.lines]
    assert ["story", "1.2", "2", "to", "20", "0.7", "balanced"] in rows
    assert "experiment gain: treatment, control (active, coverage 1)" in listed.lines
    sha = ConfigStore.open(folder).snapshot.sha
    assert listed.lines[-1] == f"in force: sha {sha}"
    data = gravity("list", "--json").json()
    assert (data["sha"], data["number"]) == (sha, 0)
    assert [task["name"] for task in data["tasks"]] == ["default", "story"]
    assert data["tasks"][1]["temperature"] == 0.7


def test_show_says_where_each_field_comes_from(gravity: Gravity) -> None:
    shown = gravity("show", "story")
    rows = {line.split()[0]: line.split()[1:] for line in shown.lines[1:]}
    assert rows["gravity_strength"] == ["written", "here", "1.2"]
    assert rows["sampling.temperature"] == ["from", "default", "0.7"]
    assert rows["gravity.decay"] == ["schema", "linear"]
    data = gravity("show", "story", "--json").json()["documents"]["tasks.story"]
    assert data["origins"]["sampling.temperature"] == "default"
    assert data["effective"]["sampling"]["temperature"] == 0.7
    assert "sampling" not in data["written"]


def test_show_as_written_is_yaml_that_can_be_published(gravity: Gravity) -> None:
    shown = gravity("show", "story", "--written")
    document = yaml.safe_load("\n".join(shown.lines[1:]))
    assert document == {
        "task_type": "story",
        "gravity_strength": 1.2,
        "adaptive": {"k_min": 2, "k_max": 20},
    }


def test_show_all_and_show_nothing(gravity: Gravity) -> None:
    assert set(gravity("show", "--json").json()["documents"]) == {
        "tasks.default",
        "tasks.story",
        "experiments.gain",
    }
    missing = gravity("show", "poem")
    assert missing.status == 2
    assert "there are default, story, gain" in missing.printed


def test_show_an_old_version(gravity: Gravity, folder: Path, tmp_path: Path) -> None:
    changed = tmp_path / "story.yaml"
    changed.write_text("task_type: story\ngravity_strength: 2\nadaptive: {k_min: 2, k_max: 20}\n")
    assert gravity("publish", changed, "--why", "stronger").status == 0
    strength = [
        gravity("show", "story", "--at", at, "--json").json()["documents"]["tasks.story"]["effective"]
        for at in ("head", "1", "-1")
    ]
    assert [each["gravity_strength"] for each in strength] == [2.0, 2.0, 1.2]
    assert gravity("show", "--at", "9").status == 2


def test_diff_has_the_status_of_diff_and_a_line_a_field(
    gravity: Gravity, folder: Path, tmp_path: Path
) -> None:
    assert gravity("diff").status == 0
    other = shutil.copytree(folder, tmp_path / "other")
    (other / "tasks" / "story.yaml").write_text("task_type: story\ngravity_strength: 8\npenalize: [tax]\n")
    (other / "tasks" / "poem.yaml").write_text("task_type: poem\ngravity_strength: 1\n")
    (other / "experiments" / "gain.yaml").unlink()
    differing = gravity("diff", folder, other)
    assert differing.status == 1
    assert differing.lines == [
        "experiments.gain: removed",
        "tasks.poem: added",
        "tasks.story.adaptive.k_max: 20 -> –",
        "tasks.story.adaptive.k_min: 2 -> –",
        "tasks.story.gravity_strength: 1.2 -> 8",
        'tasks.story.penalize: – -> ["tax"]',
    ]
    (change,) = gravity("diff", folder, folder.parent / "other", "--json").json()[-2:-1]
    assert change == {"path": "tasks.story.gravity_strength", "before": 1.2, "after": 8.0}


def test_diff_finds_what_was_edited_by_hand_since_the_last_publish(
    gravity: Gravity, folder: Path, tmp_path: Path
) -> None:
    changed = tmp_path / "story.yaml"
    changed.write_text("task_type: story\ngravity_strength: 2\n")
    assert gravity("publish", changed, "--why", "stronger").status == 0
    assert gravity("diff").status == 0
    path = folder / "tasks" / "story.yaml"
    path.write_text(path.read_text().replace("gravity_strength: 2.0", "gravity_strength: 2.5"))
    assert gravity("diff").lines == ["tasks.story.gravity_strength: 2 -> 2.5"]
    back = gravity("diff", "-1", "head")  # an argument, although it begins with a dash
    assert (back.status, back.lines) == (1, ["tasks.story.gravity_strength: 2 -> 2.5"])


def test_history_tells_who_when_from_to_and_why(gravity: Gravity, tmp_path: Path) -> None:
    assert gravity("history").lines == ["nothing was published yet"]
    changed = tmp_path / "story.yaml"
    changed.write_text("task_type: story\ngravity_strength: 2\n")
    assert gravity("publish", changed, "--why", "stronger", "--who", "ada").status == 0
    assert gravity("rollback", "-1", "--why", "too strong", "--who", "bob").status == 0
    (newest, first) = gravity("history", "--json").json()
    assert (newest["kind"], newest["who"], newest["why"]) == ("rollback", "bob", "too strong")
    assert (first["number"], first["who"], first["why"]) == (1, "ada", "stronger")
    assert newest["from_sha"] == first["to_sha"]
    assert newest["to_sha"] == first["from_sha"]
    lines = gravity("history", "--limit", "1").lines
    assert len(lines) == 2
    assert " rollback by bob: " in lines[0]
    assert lines[1].strip() == "too strong"


def test_status_of_a_folder_without_redis_names_who_knows(
    run: Gravity, folder: Path, free_port: Callable[[], int]
) -> None:
    nowhere = f"redis://127.0.0.1:{free_port()}/0"
    found = run("status", "--store", "files", "--config", folder, "--redis", nowhere)
    assert found.status == 0
    assert "/admin/config/status" in found.printed
    away = run("status", "--store", "redis", "--config", folder, "--redis", nowhere)
    assert (away.status, "does not answer" in away.printed) == (2, True)
