from __future__ import annotations

from typing import Any

import pytest

from gateway.errors import PublishRefused
from gateway.store.centre import FieldChange, Note
from gateway.store.documents import Documents
from gateway.store.guards import JumpLimits, check, jumps

LIMITS = JumpLimits(strength=1.0, temperature=0.3, k_factor=2.0, budget_factor=2.0)
BASE: dict[str, Any] = {
    "gravity_strength": 1.0,
    "adaptive": {"k_min": 4, "k_max": 40},
    "sampling": {"temperature": 0.5},
    "context": {"token_budget": 1000},
}


def documents(fields: dict[str, Any], experiment: dict[str, Any] | None = None) -> Documents:
    tasks = {"default": {"task_type": "default", **fields}, "child": {"task_type": "child"}}
    return Documents(tasks, {"e": experiment} if experiment else {})


@pytest.mark.parametrize(
    "change",
    [
        {"gravity_strength": 2.0},
        {"adaptive": {"k_min": 8, "k_max": 20}},
        {"sampling": {"temperature": 0.8}},
        {"sampling": {"temperature": 0.2}},
        {"context": {"token_budget": 500}},
        {"context": {}},
        {"adaptive": None},
    ],
)
def test_a_change_up_to_the_limit_is_no_jump(change: dict[str, Any]) -> None:
    assert jumps(documents(BASE), documents(BASE | change), LIMITS) == ()


@pytest.mark.parametrize(
    ("change", "field", "before", "after"),
    [
        ({"gravity_strength": 2.01}, "gravity_strength", 1.0, 2.01),
        ({"adaptive": {"k_min": 1, "k_max": 40}}, "adaptive.k_min", 4, 1),
        ({"adaptive": {"k_min": 4, "k_max": 81}}, "adaptive.k_max", 40, 81),
        ({"sampling": {"temperature": 0.81}}, "sampling.temperature", 0.5, 0.81),
        ({"sampling": {}}, "sampling.temperature", 0.5, 1.0),
        ({"context": {"token_budget": 499}}, "context.token_budget", 1000, 499),
    ],
)
def test_a_jump_is_found_in_every_task_that_inherits_it(
    change: dict[str, Any], field: str, before: float, after: float
) -> None:
    assert jumps(documents(BASE), documents(BASE | change), LIMITS) == tuple(
        FieldChange(f"tasks.{task}.{field}", before, after) for task in ("child", "default")
    )


def test_a_new_task_jumps_from_nowhere() -> None:
    before = documents(BASE)
    after = Documents({**before.tasks, "new": {"task_type": "new", "gravity_strength": 9.0}}, {})
    assert jumps(before, after, LIMITS) == ()


def test_the_refusal_names_every_field_and_the_ways_on() -> None:
    after = documents(BASE | {"gravity_strength": 8.0, "sampling": {"temperature": 1.5}})
    with pytest.raises(PublishRefused) as caught:
        check(documents(BASE), after, Note("a", "b"), LIMITS)
    for words in (
        "tasks.default.gravity_strength: 1 -> 8",
        "tasks.child.sampling.temperature: 0.5 -> 1.5",
        "--force",
        "--share",
    ):
        assert words in caught.value.message


def test_force_needs_a_reason() -> None:
    after = documents(BASE | {"gravity_strength": 8.0})
    check(documents(BASE), after, Note("a", "measured at night", is_forced=True), LIMITS)
    with pytest.raises(PublishRefused, match="reason"):
        check(documents(BASE), after, Note("a", "  ", is_forced=True), LIMITS)


def experiment(**changes: Any) -> dict[str, Any]:
    arms = [{"name": "treatment", "start": 0.0}, {"name": "control", "start": 0.5}]
    return {"id": "e", "enrol_seed": "a", "arm_seed": "b", "arms": arms} | changes


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("arms", [{"name": "treatment", "start": 0.0}, {"name": "control", "start": 0.6}]),
        ("enrol_seed", "c"),
        ("arm_seed", "c"),
        ("unit_header", "x-session"),
    ],
)
def test_the_arms_of_an_active_experiment_stay_until_its_version_rises(field: str, value: object) -> None:
    before = documents(BASE, experiment())
    note = Note("a", "even with force", is_forced=True)
    with pytest.raises(PublishRefused, match=f"experiments.e.{field}"):
        check(before, documents(BASE, experiment(**{field: value})), note, LIMITS)
    check(before, documents(BASE, experiment(version=2, **{field: value})), note, LIMITS)
    off = documents(BASE, experiment(is_active=False))
    check(off, documents(BASE, experiment(is_active=False, **{field: value})), note, LIMITS)


def test_coverage_and_the_end_of_an_experiment_are_free() -> None:
    before = documents(BASE, experiment())
    check(before, documents(BASE, experiment(coverage=0.2)), Note("a", "b"), LIMITS)
    check(before, documents(BASE, experiment(is_active=False)), Note("a", "b"), LIMITS)
