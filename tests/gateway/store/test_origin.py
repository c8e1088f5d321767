"""Where a field comes from."""

from __future__ import annotations

import pytest

from gateway.errors import ConfigError
from gateway.store.documents import Documents
from gateway.store.origin import effective_document, sourced_fields, written_document

DOCUMENTS = Documents(
    {
        "default": {
            "task_type": "default",
            "description": "not inherited",
            "sampling": {"temperature": 0.7, "top_p": 0.9},
            "gravity": {"decay": "none"},
            "context": {"keep_threshold": 0.3},
        },
        "story": {
            "task_type": "story",
            "gravity_strength": 2.0,
            "sampling": {"temperature": 1.1, "top_p": None},
            "penalize": [],
        },
    },
    {
        "gain": {
            "id": "gain",
            "enrol_seed": "a",
            "arm_seed": "b",
            "arms": [{"name": "control", "start": 0.0}],
        }
    },
)


def test_each_field_says_whether_it_is_written_inherited_or_the_schemas() -> None:
    fields = {
        field.path: (field.value, field.origin) for field in sourced_fields(DOCUMENTS, "tasks", "story")
    }
    assert fields["gravity_strength"] == (2.0, "written")
    assert fields["sampling.temperature"] == (1.1, "written")
    assert fields["sampling.top_p"] == (None, "schema")  # taken away by a null
    assert fields["penalize"] == ([], "written")
    assert fields["gravity.decay"] == ("none", "default")
    assert fields["context.keep"] == (0.3, "default")  # as a document of version 1 calls it keep_threshold
    assert fields["description"] == ("", "schema")  # never inherited
    assert fields["gravity.boost_weight"] == (0.2, "schema")
    assert fields["calibration"] == (None, "schema")
    assert fields["buckets.edges"] == ([0.03, 0.08, 0.15], "schema")


def test_default_inherits_from_nobody() -> None:
    origins = {field.path: field.origin for field in sourced_fields(DOCUMENTS, "tasks", "default")}
    assert (origins["gravity.decay"], origins["penalize"]) == ("written", "schema")


def test_an_experiment_has_what_is_written_and_the_schemas() -> None:
    origins = {field.path: field.origin for field in sourced_fields(DOCUMENTS, "experiments", "gain")}
    assert (origins["arms"], origins["coverage"]) == ("written", "schema")


def test_the_effective_document_is_whole() -> None:
    story = effective_document(DOCUMENTS, "tasks", "story")
    assert story["sampling"] == {"temperature": 1.1, "top_p": None, "max_tokens": None}
    assert written_document(DOCUMENTS, "tasks", "story") == DOCUMENTS.tasks["story"]


def test_a_name_that_is_not_there_is_said() -> None:
    with pytest.raises(ConfigError, match="there is no experiment 'story'"):
        sourced_fields(DOCUMENTS, "experiments", "story")
