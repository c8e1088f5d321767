from __future__ import annotations

import hashlib
import json

import pytest

from gateway.errors import ConfigError
from gateway.store.backend import SourceFile
from gateway.store.document import SCHEMA_VERSION
from gateway.store.documents import documents_from_bytes
from gateway.store.editing import read_documents
from gateway.store.lineage import effective
from gateway.store.migrate import migrated
from gateway.store.snapshot import build_snapshot
from gateway.store.spelling import in_todays_schema

OLD = {"task_type": "default", "schema_version": 1, "context": {"keep_threshold": 0.3, "order": "ends"}}


def stored(**tasks: object) -> bytes:
    return json.dumps({"tasks": tasks, "experiments": {}}, sort_keys=True, separators=(",", ":")).encode()


def file(text: str) -> SourceFile:
    return SourceFile("tasks", "tasks/t.yaml", text.encode())


def test_a_renamed_field_is_read_under_its_new_name() -> None:
    assert migrated("tasks", OLD) == {
        "task_type": "default",
        "schema_version": SCHEMA_VERSION,
        "context": {"keep": 0.3, "order": "ends"},
    }
    assert migrated("tasks", {"task_type": "t", "context": {"keep_threshold": 0.3}}) == {
        "task_type": "t",
        "context": {"keep": 0.3},
    }


def test_todays_document_is_left_as_it_is() -> None:
    today = {"task_type": "t", "schema_version": 2, "context": {"keep_threshold": 0.3}}
    assert migrated("tasks", today) == today
    assert migrated("experiments", {"id": "e", "context": {"keep_threshold": 1}})["context"] == {
        "keep_threshold": 1
    }


def test_a_stored_snapshot_of_version_1_serves_under_the_sha_of_its_bytes() -> None:
    content = stored(default=OLD)
    documents = documents_from_bytes(content)
    snapshot = build_snapshot(documents, 1.0)
    assert snapshot.tasks["default"].context.keep == 0.3
    assert snapshot.sha == hashlib.sha256(content).hexdigest()
    assert documents.as_bytes() == content


def test_unknown_fields_of_a_stored_snapshot_are_passed_over_and_kept() -> None:
    future = {
        "task_type": "default",
        "schema_version": 7,
        "warp": {"x": 1},
        "adaptive": {"k_min": 2, "psi": 0.5},
    }
    content = stored(default=future)
    documents = documents_from_bytes(content)
    task = build_snapshot(documents, 1.0).tasks["default"]
    assert task.adaptive is not None
    assert task.adaptive.k_min == 2
    assert documents.as_bytes() == content
    assert in_todays_schema(documents).tasks["default"] == {
        "task_type": "default",
        "schema_version": SCHEMA_VERSION,
        "adaptive": {"k_min": 2},
    }


def test_a_file_of_version_1_may_be_edited_and_one_from_the_future_may_not() -> None:
    old = read_documents([file("task_type: default\nschema_version: 1\ncontext: {keep_threshold: 0.4}\n")])
    assert effective(old, "default").context.keep == 0.4
    with pytest.raises(ConfigError) as caught:
        read_documents([file("task_type: default\nschema_version: 3\n")])
    assert (caught.value.file, caught.value.line) == ("tasks/t.yaml", 2)
    assert "3 is newer" in caught.value.message
    with pytest.raises(ConfigError, match="keep_threshold"):
        read_documents([file("task_type: default\nschema_version: 2\ncontext: {keep_threshold: 0.4}\n")])


@pytest.mark.parametrize(
    "content", [b"{", b"[]", b'{"tasks": {}}', b'{"tasks": {"a": 1}, "experiments": {}}']
)
def test_what_is_no_stored_configuration_is_an_error(content: bytes) -> None:
    with pytest.raises(ConfigError):
        documents_from_bytes(content)
