from __future__ import annotations

from gateway.store.centre import FieldChange
from gateway.store.difference import diff
from gateway.store.documents import Documents


def test_every_field_is_named_by_its_path() -> None:
    before = Documents({"a": {"task_type": "a", "gravity": {"decay": "none"}, "penalize": ["x"]}}, {})
    after = Documents(
        {
            "a": {"task_type": "a", "gravity": {"boost_weight": 0.5}, "penalize": ["x", "y"]},
            "b": {"task_type": "b"},
        },
        {},
    )
    assert diff(before, after) == (
        FieldChange("tasks.a.gravity.boost_weight", None, 0.5),
        FieldChange("tasks.a.gravity.decay", "none", None),
        FieldChange("tasks.a.penalize", ["x"], ["x", "y"]),
        FieldChange("tasks.b.task_type", None, "b"),
    )
    assert diff(after, after) == ()


def test_a_null_that_was_added_is_a_difference() -> None:
    before = Documents({"a": {"task_type": "a"}}, {})
    after = Documents({"a": {"task_type": "a", "adaptive": None}}, {})
    assert diff(before, after) == (FieldChange("tasks.a.adaptive", None, None),)


def test_a_rename_by_a_migration_is_none() -> None:
    old = Documents({"a": {"task_type": "a", "context": {"keep_threshold": 0.3}}}, {})
    new = Documents({"a": {"task_type": "a", "context": {"keep": 0.3}}}, {})
    assert diff(old, new) == ()
