"""What a folder, single files, a removal and a share make of the head."""

from __future__ import annotations

import pytest

from gateway.errors import ConfigError
from gateway.store.amendment import EMPTY, Amendment, amended, kind_of
from gateway.store.backend import SourceFile
from gateway.store.centre import Version
from gateway.store.documents import Documents

DEFAULT = {"task_type": "default", "adaptive": {"k_min": 10, "k_max": 20}}
STORY = {"task_type": "story", "gravity_strength": 1.0}
HEAD = Version(3, "a" * 64, Documents({"default": DEFAULT, "story": STORY}, {}))
SEED = b"""{"task_type": "quest", "core_semantics": ["dragon"], "gravity_strength": 0.5,
"penalize": ["tax"], "decay_after_steps": 40}"""


def task(text: str, name: str = "x.yaml") -> SourceFile:
    return SourceFile("tasks", name, text.encode())


def test_a_single_file_replaces_one_document_and_the_seeds_json_adds_one() -> None:
    files = (task("task_type: story\ngravity_strength: 1.5"), SourceFile("tasks", "quest.json", SEED))
    found = amended(HEAD, Amendment(files))
    assert found.tasks["story"] == {"task_type": "story", "gravity_strength": 1.5}
    assert found.tasks["default"] == DEFAULT
    assert found.tasks["quest"]["penalize"] == ["tax"]


def test_a_whole_amendment_has_nothing_else() -> None:
    files = (task("task_type: default"), task("task_type: other"))
    assert set(amended(HEAD, Amendment(files, is_whole=True)).tasks) == {"default", "other"}


def test_a_single_file_is_checked_with_what_it_inherits() -> None:
    with pytest.raises(ConfigError, match="k_m") as caught:
        amended(HEAD, Amendment((task("task_type: story\nadaptive:\n  k_min: 30", "story.yaml"),)))
    assert (caught.value.file, caught.value.line) == ("story.yaml", 2)
    good = amended(HEAD, Amendment((task("task_type: story\nadaptive:\n  k_min: 15"),)))
    assert good.tasks["story"]["adaptive"] == {"k_min": 15}


def test_fields_that_another_program_wrote_into_default_are_no_typos() -> None:
    head = Version(1, "b" * 64, Documents({"default": DEFAULT | {"later": 1}, "story": STORY}, {}))
    found = amended(head, Amendment((task("task_type: story\ngravity_strength: 0.5"),)))
    assert found.tasks["default"]["later"] == 1
    assert found.tasks["story"]["gravity_strength"] == 0.5


def test_what_is_removed_must_be_there() -> None:
    assert set(amended(HEAD, Amendment((), removed=("tasks.story",))).tasks) == {"default"}
    for place in ("tasks.nowhere", "story", "experiments.story"):
        with pytest.raises(ConfigError, match="to remove"):
            amended(HEAD, Amendment((), removed=(place,)))


def test_a_share_keeps_the_task_and_publishing_the_same_for_all_ends_it() -> None:
    files = (task("task_type: story\ngravity_strength: 8"),)
    shared = amended(HEAD, Amendment(files, share=0.1))
    assert shared.tasks["story"] == STORY
    assert shared.experiments["story-candidate"]["version"] == 4
    for_all = amended(Version(4, shared.sha, shared), Amendment(files))
    assert set(for_all.tasks) == {"default", "story"}
    assert for_all.tasks["story"]["gravity_strength"] == 8
    assert for_all.experiments == {}


def test_into_an_empty_namespace_files_are_all_there_is() -> None:
    assert set(amended(EMPTY, Amendment((task("task_type: default"),))).tasks) == {"default"}


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (SEED, "tasks"),
        (b"task_type: a", "tasks"),
        (b"id: a\narms: [{name: control, start: 0}]", "experiments"),
    ],
)
def test_a_document_is_known_by_its_fields(content: bytes, kind: str) -> None:
    assert kind_of("x", content) == kind


def test_what_is_no_document_is_said_with_its_file() -> None:
    with pytest.raises(ConfigError, match="is no task") as caught:
        kind_of("notes.yaml", b"title: x")
    assert caught.value.file == "notes.yaml"
