"""Real files: they stay the truth, also for who edits them by hand."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from gateway.errors import CentreUnavailable, ConfigError
from gateway.store.backend import SourceFile
from gateway.store.centre import Change, Note
from gateway.store.documents import Documents
from gateway.store.editing import read_documents
from gateway.store.folder_centre import FolderCentre
from gateway.store.proposal import Rules
from gateway.store.saved import SavedVersions

WHY = Note("anna", "for a reason")
DEFAULT = "# what serves where nothing is named\ntask_type: default # by name\ngravity_strength: 0.50\n"
OTHER = '{"task_type": "other", "penalize": ["a"]}\n'
EXPERIMENT = (
    "# an experiment\nid: gain\nenrol_seed: a\narm_seed: b\n"
    "arms: [{name: treatment, start: 0}, {name: control, start: 0.5}]\n"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tasks").mkdir()
    (tmp_path / "experiments").mkdir()
    (tmp_path / "tasks" / "a-name-of-its-own.yaml").write_text(DEFAULT)
    (tmp_path / "tasks" / "other.json").write_text(OTHER)
    (tmp_path / "experiments" / "gain.yaml").write_text(EXPERIMENT)
    return tmp_path


@pytest.fixture
def centre(folder: Path) -> FolderCentre:
    return FolderCentre(folder, Rules())


def contents(folder: Path) -> dict[str, str]:
    files = [path for kind in ("tasks", "experiments") for path in (folder / kind).iterdir()]
    return {str(path.relative_to(folder)): path.read_text() for path in files}


def changed(documents: Documents, task: str, **fields: object) -> Documents:
    tasks = {**documents.tasks, task: {"task_type": task, **documents.tasks.get(task, {}), **fields}}
    return Documents(tasks, documents.experiments)


def test_a_folder_that_was_never_published_to_is_version_0(centre: FolderCentre, folder: Path) -> None:
    assert (centre.head().number, centre.history()) == (0, ())
    assert centre.find("head").sha == centre.find(centre.head().sha[:8]).sha
    assert not (folder / ".versions").exists()


def test_only_the_documents_that_change_are_written(centre: FolderCentre, folder: Path) -> None:
    before = contents(folder)
    head = centre.head()
    wanted = changed(head.documents, "other", gravity_strength=0.75)
    centre.publish(changed(wanted, "new", penalize=["b"]), WHY)
    after = contents(folder)
    assert json.loads(after.pop("tasks/other.json")) == {
        "task_type": "other",
        "penalize": ["a"],
        "gravity_strength": 0.75,
    }
    assert after.pop("tasks/new.yaml") == "task_type: new\npenalize: [b]\n"
    before.pop("tasks/other.json")
    assert after == before  # comments too


def test_a_rollback_copies_the_files_back_byte_for_byte(centre: FolderCentre, folder: Path) -> None:
    before, first = contents(folder), centre.head()
    without = Documents({"default": {"task_type": "default", "gravity_strength": 0.75}}, {})
    centre.publish(without, WHY)
    assert list(contents(folder)) == ["tasks/a-name-of-its-own.yaml"]
    rolled = centre.rollback("-1", WHY)
    assert rolled.sha == first.sha
    assert contents(folder) == before


def test_going_back_by_a_publish_leaves_the_comments_of_today(centre: FolderCentre, folder: Path) -> None:
    first = centre.head().documents
    centre.publish(changed(first, "other", gravity_strength=0.75), WHY)
    (folder / "tasks" / "a-name-of-its-own.yaml").write_text(DEFAULT + "# written since\n")
    centre.publish(first, WHY)
    assert centre.head().documents == first
    assert contents(folder)["tasks/a-name-of-its-own.yaml"] == DEFAULT + "# written since\n"


def test_edits_by_hand_are_noticed_and_kept(centre: FolderCentre, folder: Path) -> None:
    centre.publish(changed(centre.head().documents, "default", gravity_strength=0.75), WHY)
    by_hand = "task_type: default\ngravity_strength: 1.0 # by hand\n"
    (folder / "tasks" / "a-name-of-its-own.yaml").write_text(by_hand)
    edited = centre.head()
    assert edited.number == 1
    assert edited.sha != centre.history()[0].to_sha
    assert centre.find("-1").sha == centre.history()[0].to_sha
    published = centre.publish(changed(edited.documents, "default", gravity_strength=1.25), WHY)
    assert published.from_sha == edited.sha
    centre.rollback(edited.sha[:10], WHY)
    assert contents(folder)["tasks/a-name-of-its-own.yaml"] == by_hand


def test_files_that_are_broken_can_be_rolled_back_and_are_not_lost(
    centre: FolderCentre, folder: Path
) -> None:
    before = contents(folder)
    centre.publish(changed(centre.head().documents, "default", gravity_strength=0.75), WHY)
    (folder / "tasks" / "a-name-of-its-own.yaml").write_text("task_type: [")
    with pytest.raises(ConfigError):
        centre.publish(changed(read_documents([SourceFile("tasks", "t", DEFAULT.encode())]), "default"), WHY)
    centre.rollback("0", WHY)
    assert contents(folder) == before
    kept = list((folder / ".versions").glob("broken-*/tasks/a-name-of-its-own.yaml"))
    assert [path.read_text() for path in kept] == ["task_type: ["]


def test_a_publish_that_died_half_way_is_seen_whole_and_finished(centre: FolderCentre, folder: Path) -> None:
    head = centre.head()
    wanted = changed(changed(head.documents, "default", gravity_strength=0.75), "other", penalize=["z"])
    files = [
        SourceFile("tasks", "tasks/a-name-of-its-own.yaml", b"task_type: default\ngravity_strength: 0.75\n"),
        SourceFile("tasks", "tasks/other.json", b'{"task_type": "other", "penalize": ["z"]}'),
        SourceFile("experiments", "experiments/gain.yaml", EXPERIMENT.encode()),
    ]
    saved = SavedVersions(folder)
    saved.root.mkdir()
    saved.save(head.documents, ())
    saved.save(wanted, files)
    change = Change(1, "publish", head.sha, wanted.sha, "anna", "and then the light went out", 1.0)
    (saved.root / "pending.json").write_text(json.dumps(asdict(change)))
    (folder / files[0].name).write_bytes(files[0].content)  # the first of two files
    seen = centre.head()
    assert (seen.number, seen.sha) == (1, wanted.sha)
    assert contents(folder)["tasks/other.json"] == OTHER
    assert centre.history() == (change,)
    assert contents(folder)["tasks/other.json"] == files[1].content.decode()
    assert not (saved.root / "pending.json").exists()
    assert centre.head() == seen


def test_what_was_saved_is_checked_against_its_name(centre: FolderCentre, folder: Path) -> None:
    first = centre.head().sha
    centre.publish(changed(centre.head().documents, "default", gravity_strength=0.75), WHY)
    stored = folder / ".versions" / first
    text = (stored / "documents.json").read_text()
    (stored / "documents.json").write_text(text.replace("0.5", "0.6", 1))
    with pytest.raises(ConfigError, match="damaged"):
        centre.rollback(first[:8], WHY)
    (stored / "documents.json").write_text(text)
    (stored / "tasks" / "a-name-of-its-own.yaml").write_text(DEFAULT.replace("0.50", "0.60"))
    with pytest.raises(ConfigError, match="damaged"):
        centre.rollback(first[:8], WHY)


def test_a_version_from_another_schema_comes_back_in_todays(centre: FolderCentre, folder: Path) -> None:
    centre.publish(changed(centre.head().documents, "default", gravity_strength=0.75), WHY)
    old = Documents(
        {"default": {"task_type": "default", "context": {"keep_threshold": 0.3}, "warp": {"x": 1}}}, {}
    )
    exported = {
        "format": 1,
        "head": {"sha": old.sha},
        "history": [],
        "snapshots": {old.sha: old.as_bytes().decode()},
    }
    centre.import_(exported, Note("anna", "from long ago and from the future"))
    (text,) = contents(folder).values()
    assert (
        text == "# what serves where nothing is named\ntask_type: default # by name\ncontext:\n  keep: 0.3\n"
    )


def test_a_folder_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    centre = FolderCentre(tmp_path / "nowhere", Rules())
    with pytest.raises(CentreUnavailable, match="cannot be written"):
        centre.publish(Documents({"default": {"task_type": "default"}}, {}), WHY)


def test_git_is_told_to_leave_the_versions_alone(centre: FolderCentre, folder: Path) -> None:
    centre.publish(changed(centre.head().documents, "default", gravity_strength=0.75), WHY)
    assert (folder / ".versions" / ".gitignore").read_text() == "*\n"
    modes = {path.stat().st_mode & 0o777 for path in (folder / "tasks").iterdir()}
    assert modes == {0o644}
