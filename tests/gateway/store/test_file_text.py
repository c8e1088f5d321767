"""Documents as files: written anew, and changed in the file that is there."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from gateway.store.backend import Kind
from gateway.store.file_text import changed_text, file_text

WRITTEN = b"""\
# Why there is this task.
task_type: rag
description: 'Short answers'   # for people
gravity_strength: 1.2 # measured
adaptive: {k_min: 3, k_max: 40}
context:
  template: "{title}\\n{text}"
  keep: balanced # or safe
calibration: # eight questions
  model: m
  temperature: 0.40
  s_mean: 0.034
"""
ARMS = b"""\
id: gain
arms: # starts are fixed for ever
  - {name: treatment, start: 0.0}
  - {name: control, start: 0.5} # as it was
"""


def changed(content: bytes, **fields: Any) -> list[str]:
    """The lines that a change of these fields makes other, new or gone."""
    document = yaml.safe_load(content)
    wanted = {name: value for name, value in (document | fields).items() if value is not ...}
    kind: Kind = "experiments" if "id" in document else "tasks"
    text = changed_text(content, kind, f"{kind}/x.yaml", wanted)
    assert yaml.safe_load(text) == wanted
    before, after = content.decode().splitlines(), text.decode().splitlines()
    return [f"-{line}" for line in before if line not in after] + [
        f"+{line}" for line in after if line not in before
    ]


def test_a_changed_field_changes_its_line_alone() -> None:
    assert changed(WRITTEN, gravity_strength=8.0) == [
        "-gravity_strength: 1.2 # measured",
        "+gravity_strength: 8.0 # measured",
    ]
    assert changed(WRITTEN, adaptive={"k_min": 3, "k_max": 20}) == [
        "-adaptive: {k_min: 3, k_max: 40}",
        "+adaptive: {k_min: 3, k_max: 20}",
    ]


def test_fields_come_and_go_and_the_others_keep_their_comments() -> None:
    assert changed(WRITTEN, penalize=["tax", "law"]) == ["+penalize: [tax, law]"]
    assert changed(WRITTEN, description=...) == ["-description: 'Short answers'   # for people"]


def test_an_arm_changes_in_its_place() -> None:
    arms = [{"name": "treatment", "start": 0.0}, {"name": "control", "start": 0.5, "pruning": False}]
    assert changed(ARMS, arms=arms) == [
        "-  - {name: control, start: 0.5} # as it was",
        "+  - {name: control, start: 0.5, pruning: false} # as it was",
    ]


@pytest.mark.parametrize(
    "word", ["yes", "1e3", "0x10", "null", "~", "12:30", "a: b", "# no", "two\nlines", ""]
)
def test_a_word_that_yaml_might_take_for_something_else_stays_a_word(word: str) -> None:
    changed(WRITTEN, description=word, penalize=[word])
    assert yaml.safe_load(file_text("tasks", "tasks/x.yaml", {"description": word})) == {"description": word}


def test_what_cannot_be_edited_is_written_anew() -> None:
    document = {"task_type": "rag", "gravity_strength": 2.0}
    anew = file_text("tasks", "tasks/x.yaml", document)
    assert changed_text(b"- a list\n", "tasks", "tasks/x.yaml", document) == anew
    assert changed_text(b"a: [", "tasks", "tasks/x.yaml", document) == anew
    assert json.loads(changed_text(b"{}", "tasks", "tasks/x.json", document)) == document
