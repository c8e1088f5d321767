from __future__ import annotations

import pytest

from gateway.errors import ConfigError
from gateway.store.backend import SourceFile
from gateway.store.document import GravitySection, TaskDocument
from gateway.store.editing import read_documents
from gateway.store.lineage import effective, laid_over
from gateway.store.snapshot import build_snapshot

DEFAULT = """\
task_type: default
description: of the default
gravity_strength: 0.4
core_semantics: [sun, sea]
adaptive: {k_min: 5, k_max: 50, s_high: 0.4}
gravity: {theme_keywords: 3, decay: none}
sampling: {temperature: 0.7, max_tokens: 99}
calibration: {model: m, temperature: 0.7, s_mean: 0.1}
"""


def inherited(text: str) -> TaskDocument:
    files = [SourceFile("tasks", "tasks/default.yaml", DEFAULT.encode())]
    files.append(SourceFile("tasks", "tasks/t.yaml", f"task_type: t\n{text}".encode()))
    return effective(read_documents(files), "t")


def test_what_is_left_out_comes_from_default_field_by_field() -> None:
    task = inherited("sampling: {temperature: 0.2}\nadaptive: {k_max: 60}\n")
    assert task.gravity_strength == 0.4
    assert task.sampling.temperature == 0.2
    assert task.sampling.max_tokens == 99
    assert task.adaptive is not None
    assert (task.adaptive.k_min, task.adaptive.k_max, task.adaptive.s_high) == (5, 60, 0.4)
    assert task.core_semantics == ("sun", "sea")


def test_a_list_is_taken_as_a_whole() -> None:
    assert inherited("core_semantics: [moon]\n").core_semantics == ("moon",)


def test_a_null_resets_to_the_schemas_own_default() -> None:
    task = inherited("adaptive: null\ngravity: null\nsampling: {max_tokens: null}\ngravity_strength: null\n")
    assert task.adaptive is None
    assert task.gravity == GravitySection()
    assert (task.sampling.temperature, task.sampling.max_tokens) == (0.7, None)
    assert task.gravity_strength == 0.0


def test_what_says_something_of_one_task_alone_is_not_inherited() -> None:
    task = inherited("")
    assert (task.task_type, task.description, task.calibration) == ("t", "", None)


def test_inheritance_and_own_fields_are_checked_together() -> None:
    assert inherited("adaptive: {k_min: 45}\n").adaptive is not None
    with pytest.raises(ConfigError) as caught:
        inherited("\nadaptive:\n  k_min: 51\n")  # above the inherited k_max
    assert (caught.value.file, caught.value.line) == ("tasks/t.yaml", 3)
    assert caught.value.message == "adaptive: k_min must not be above k_max"


def test_a_typo_is_an_error_also_where_its_value_is_null() -> None:
    with pytest.raises(ConfigError) as caught:
        inherited("gravity:\n  decaay: null\n")
    assert (caught.value.line, caught.value.message) == (3, "gravity.decaay: Extra inputs are not permitted")


def test_what_was_written_names_the_configuration_and_not_what_it_inherits() -> None:
    files = [SourceFile("tasks", "tasks/default.yaml", DEFAULT.encode())]
    files.append(SourceFile("tasks", "tasks/t.json", b'{"task_type": "t", "sampling": {"top_p": 1}}'))
    documents = read_documents(files)
    assert documents.tasks["t"] == {"task_type": "t", "sampling": {"top_p": 1.0}}
    assert build_snapshot(documents, 1.0).tasks["t"].sampling.max_tokens == 99


def test_laying_over_changes_neither_side() -> None:
    base, own = {"a": {"b": 1, "c": 2}, "d": [1]}, {"a": {"b": None, "e": {"f": None, "g": 3}}, "d": [2]}
    assert laid_over(base, own) == {"a": {"c": 2, "e": {"g": 3}}, "d": [2]}
    assert base == {"a": {"b": 1, "c": 2}, "d": [1]}
    assert own == {"a": {"b": None, "e": {"f": None, "g": 3}}, "d": [2]}
