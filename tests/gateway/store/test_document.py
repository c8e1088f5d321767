from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from gateway.errors import ConfigError
from gateway.store.backend import SourceFile
from gateway.store.document import ExperimentDocument, TaskDocument
from gateway.store.editing import read_documents
from gateway.store.lineage import effective

SEED = {
    "task_type": "code_generation",
    "core_semantics": ["binary_search", "algorithm", "array", "target"],
    "gravity_strength": 1.2,
    "penalize": ["restaurant", "movie", "recipe"],
    "decay_after_steps": 50,
}


def task(text: str) -> TaskDocument:
    documents = read_documents([SourceFile("tasks", "tasks/t.yaml", text.encode())])
    return effective(documents, *documents.tasks)


def broken(text: str) -> tuple[int | None, str]:
    with pytest.raises(ConfigError) as caught:
        task(text)
    assert caught.value.file == "tasks/t.yaml"
    return caught.value.line, caught.value.message


def test_the_seed_form_is_a_valid_document_as_it_is() -> None:
    document = task(json.dumps(SEED))
    assert document.core_semantics == ("binary_search", "algorithm", "array", "target")
    assert document.gravity_strength == 1.2
    assert document.penalize == ("restaurant", "movie", "recipe")
    assert document.decay_after_steps == 50
    assert document.adaptive is None


def test_a_typo_is_rejected_with_its_line() -> None:
    assert broken("task_type: t\ngravity_strenght: 1.2\n") == (
        2,
        "gravity_strenght: Extra inputs are not permitted",
    )


def test_a_value_out_of_bounds_names_its_path_and_line() -> None:
    line, message = broken("task_type: t\nadaptive:\n  k_min: 3\n  s_high: 1.5\n")
    assert line == 4
    assert message.startswith("adaptive.s_high: ")


def test_a_rule_between_fields_names_the_section() -> None:
    line, message = broken("task_type: t\n\nadaptive: {k_min: 9, k_max: 3}\n")
    assert line == 3
    assert message == "adaptive: k_min must not be above k_max"


def test_an_item_of_a_list_names_its_line() -> None:
    line, message = broken("task_type: t\npenalize:\n  - movie\n  - ''\n")
    assert line == 4
    assert message.startswith("penalize.1: ")


def test_a_key_that_stands_twice_is_an_error() -> None:
    line, message = broken("task_type: t\ngravity_strength: 1\ngravity_strength: 2\n")
    assert line == 3
    assert "stands twice" in message


@pytest.mark.parametrize(
    "text", ["", "# only a comment\n", "[1, 2]", "just words", "a: [1,", "a: 'x", "\ta: 1", "a: {b: *c}"]
)
def test_what_is_no_document_is_an_error(text: str) -> None:
    assert broken(text)[1]


def test_bytes_that_are_not_utf8_are_an_error() -> None:
    with pytest.raises(ConfigError, match="UTF-8"):
        read_documents([SourceFile("tasks", "t.yaml", b"task_type: \xff\n")])


@pytest.mark.parametrize("number", [".nan", ".inf"])
def test_numbers_are_finite(number: str) -> None:
    assert "gravity_strength" in broken(f"task_type: t\ngravity_strength: {number}\n")[1]


@pytest.mark.parametrize("template", ["no text at all", "{text} {body}"])
def test_a_template_shows_the_text_and_knows_its_fields(template: str) -> None:
    with pytest.raises(ValidationError, match="template"):
        TaskDocument.model_validate({"task_type": "t", "context": {"template": template}})


def experiment(**changes: Any) -> dict[str, Any]:
    arms = [{"name": "treatment", "start": 0.0}, {"name": "control", "start": 0.5}]
    return {"id": "gain", "enrol_seed": "a", "arm_seed": "b", "arms": arms} | changes


@pytest.mark.parametrize(
    "changes",
    [
        {"arm_seed": "a"},
        {"arms": [{"name": "a", "start": 0.1}]},
        {"arms": [{"name": "a", "start": 0.0}, {"name": "b", "start": 0.0}]},
        {"arms": [{"name": "a", "start": 0.0}, {"name": "a", "start": 0.5}]},
        {"arms": []},
        {"coverage": 1.1},
    ],
)
def test_an_experiment_that_cannot_be_run_is_rejected(changes: dict[str, Any]) -> None:
    assert ExperimentDocument.model_validate(experiment()).coverage == 1.0
    with pytest.raises(ValidationError):
        ExperimentDocument.model_validate(experiment(**changes))


def test_speculation_is_off_and_bounded() -> None:
    assert task(json.dumps(SEED)).speculation.mode == "off"
    line, message = broken("task_type: t\nspeculation:\n  mode: entropy\n  max_draft: 65\n")
    assert line == 4
    assert "64" in message


def test_kv_blocks_are_off_and_never_on_together_with_speculation() -> None:
    assert task(json.dumps(SEED)).kv_blocks.mode == "off"
    _, message = broken("task_type: t\nspeculation: {mode: entropy}\nkv_blocks: {mode: entropy}\n")
    assert "kv_blocks and speculation cannot be on together" in message
    line, message = broken("task_type: t\nkv_blocks:\n  mode: entropy\n  look_every: 1\n")
    assert line == 4
    assert "2" in message
