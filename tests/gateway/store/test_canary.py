"""A change for a share of traffic: candidate, experiment, and what becomes of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from gateway.errors import ConfigError, PublishRefused
from gateway.flow.assign import arm_at, position
from gateway.store.canary import (
    GUARDRAILS,
    has_been_on_share,
    is_candidate,
    put_on_share,
    shared_tasks,
    without_decided_shares,
)
from gateway.store.centre import Note
from gateway.store.document import Arm, ExperimentDocument
from gateway.store.documents import Documents
from gateway.store.guards import JumpLimits, check
from gateway.store.snapshot import build_snapshot

DEFAULT = {"task_type": "default", "sampling": {"temperature": 0.7}}
STORY = {"task_type": "story", "gravity_strength": 1.2}


def documents(*tasks: Mapping[str, Any], experiments: Mapping[str, Any] | None = None) -> Documents:
    return Documents({task["task_type"]: task for task in tasks}, experiments or {})


def assigned(experiment: ExperimentDocument, unit: str) -> Arm | None:
    if position(experiment.enrol_seed, unit) >= experiment.coverage:
        return None
    return arm_at(position(experiment.arm_seed, unit), experiment.arms)


HEAD = documents(DEFAULT, STORY)
STRONG = documents(DEFAULT, STORY | {"gravity_strength": 8})


def test_the_task_stays_and_its_candidate_becomes_an_arm() -> None:
    shared = put_on_share(HEAD, STRONG, 0.1, number=7)
    assert shared.tasks["story"] == STORY
    assert shared.tasks["story_candidate"] == {"task_type": "story_candidate", "gravity_strength": 8}
    (experiment,) = build_snapshot(shared, 0.0).experiments
    assert (experiment.id, experiment.version, experiment.tasks) == ("story-candidate", 7, ("story",))
    assert experiment.coverage == 0.2
    assert [(arm.name, arm.start, arm.task) for arm in experiment.arms] == [
        ("treatment", 0.0, "story_candidate"),
        ("control", 0.5, None),
    ]
    assert experiment.control.name == "control"
    assert {guardrail.metric for guardrail in experiment.guardrails} == {
        "error",
        "rep_4",
        "latency_s",
        "theme_relevance",
    }
    assert experiment.guardrails == GUARDRAILS
    assert {guardrail.action for guardrail in GUARDRAILS} == {"roll_back"}


def test_the_candidate_serves_its_share_of_units() -> None:
    (experiment,) = build_snapshot(put_on_share(HEAD, STRONG, 0.25, number=1), 0.0).experiments
    lanes = [assigned(experiment, f"unit-{number}") for number in range(4_000)]
    share = sum(arm is not None and arm.name == "treatment" for arm in lanes) / len(lanes)
    # Binomial: four standard deviations of 4,000 draws at 0.25.
    assert abs(share - 0.25) < 4 * (0.25 * 0.75 / 4_000) ** 0.5


def test_another_share_moves_nobody_between_arms() -> None:
    small = put_on_share(HEAD, STRONG, 0.1, number=2)
    large = put_on_share(small, STRONG, 0.4, number=3)
    before, after = (build_snapshot(each, 0.0).experiments[0] for each in (small, large))
    assert (before.version, after.version, after.coverage) == (2, 2, 0.8)
    for number in range(500):
        arm = assigned(before, f"unit-{number}")
        assert arm is None or assigned(after, f"unit-{number}") == arm


def test_another_candidate_is_another_experiment() -> None:
    first = put_on_share(HEAD, STRONG, 0.1, number=2)
    weak = documents(DEFAULT, STORY | {"gravity_strength": 0.1})
    second = put_on_share(first, weak, 0.1, number=3)
    assert second.tasks["story_candidate"]["gravity_strength"] == 0.1
    assert second.experiments["story-candidate"]["version"] == 3
    seeds = {each.experiments["story-candidate"]["arm_seed"] for each in (first, second)}
    assert len(seeds) == 2


def test_a_candidate_that_was_stopped_gives_its_place_to_the_next() -> None:
    first = put_on_share(HEAD, STRONG, 0.1, number=2)
    experiment = {**first.experiments["story-candidate"], "is_active": False}
    stopped = Documents(first.tasks, {"story-candidate": experiment})
    rolled_back = Documents(HEAD.tasks, stopped.experiments)  # as a guardrail leaves it
    for left in (stopped, rolled_back):
        again = put_on_share(left, STRONG, 0.1, number=3)
        assert shared_tasks(left) == ()
        assert shared_tasks(again) == ("story",)
        assert again.experiments["story-candidate"]["version"] == 3  # what was stopped is not counted again


def test_the_candidate_published_for_all_is_let_through_and_cleared_away() -> None:
    shared = put_on_share(HEAD, STRONG, 0.1, number=1)
    wanted = Documents({**shared.tasks, "story": STRONG.tasks["story"]}, shared.experiments)
    assert has_been_on_share(shared, wanted, "story")
    assert without_decided_shares(shared, wanted) == STRONG
    described = Documents({**wanted.tasks, "story": {**STRONG.tasks["story"], "description": "x"}}, {})
    assert has_been_on_share(shared, described, "story")
    stronger = Documents({**wanted.tasks, "story": STORY | {"gravity_strength": 9}}, shared.experiments)
    assert not has_been_on_share(shared, stronger, "story")
    assert not has_been_on_share(HEAD, STRONG, "story")
    assert without_decided_shares(shared, stronger).experiments == {}  # its control is not what it was
    assert without_decided_shares(shared, shared) == shared


def test_a_change_of_what_tasks_inherit_is_a_candidate_of_each_of_them() -> None:
    hot = documents(DEFAULT | {"sampling": {"temperature": 1.4}}, STORY)
    shared = put_on_share(HEAD, hot, 0.05, number=1)
    assert shared_tasks(shared) == ("default", "story")
    snapshot = build_snapshot(shared, 0.0)
    assert snapshot.tasks["story"].sampling.temperature == 0.7
    assert snapshot.tasks["story_candidate"].sampling.temperature == 1.4
    assert snapshot.tasks["story_candidate"].gravity_strength == 1.2
    assert snapshot.tasks["default_candidate"].sampling.temperature == 1.4
    assert without_decided_shares(shared, Documents({**shared.tasks, **hot.tasks}, shared.experiments)) == hot


def test_what_default_no_longer_says_is_not_inherited_by_a_candidate() -> None:
    cool = documents({"task_type": "default"}, STORY)
    snapshot = build_snapshot(put_on_share(HEAD, cool, 0.05, number=1), 0.0)
    assert snapshot.tasks["story_candidate"].sampling.temperature is None


def test_a_new_task_is_in_force_at_once() -> None:
    wanted = documents(DEFAULT, STORY, {"task_type": "poem"})
    assert put_on_share(HEAD, wanted, 0.1, number=1) == wanted


@pytest.mark.parametrize(
    ("head", "wanted", "message"),
    [
        (HEAD, documents(DEFAULT), "tasks.story: a removal"),
        (HEAD, documents(DEFAULT, STORY, experiments={"a": {}}), "experiments.a: an experiment"),
        (
            documents(DEFAULT, STORY, {"task_type": "story_candidate"}),
            documents(DEFAULT, STORY | {"gravity_strength": 2}, {"task_type": "story_candidate"}),
            "tasks.story_candidate: is there",
        ),
    ],
)
def test_what_cannot_be_shared_is_refused_by_name(head: Documents, wanted: Documents, message: str) -> None:
    with pytest.raises(PublishRefused, match=message):
        put_on_share(head, wanted, 0.1, number=1)


@pytest.mark.parametrize("tasks", [["story"], []])
def test_a_task_in_another_active_experiment_is_refused(tasks: list[str]) -> None:
    gain = {
        "id": "gain",
        "tasks": tasks,
        "enrol_seed": "a",
        "arm_seed": "b",
        "arms": [{"name": "control", "start": 0.0}],
    }
    head = documents(DEFAULT, STORY, experiments={"gain": gain})
    wanted = Documents(STRONG.tasks, head.experiments)
    with pytest.raises(PublishRefused, match="in the active experiment 'gain' already"):
        put_on_share(head, wanted, 0.1, number=1)
    stopped = Documents(head.tasks, {"gain": {**gain, "is_active": False}})
    assert put_on_share(stopped, Documents(STRONG.tasks, stopped.experiments), 0.1, 1).tasks["story"] == STORY


@pytest.mark.parametrize("share", [0.0, 0.51, 1.0, float("nan")])
def test_a_share_leaves_a_control_as_large_as_itself(share: float) -> None:
    with pytest.raises(ConfigError, match="at most"):
        put_on_share(HEAD, STRONG, share, number=1)


def test_a_candidate_is_known_by_its_experiment() -> None:
    shared = put_on_share(HEAD, STRONG, 0.1, number=1)
    assert is_candidate(shared, "story_candidate")
    assert not is_candidate(shared, "story")
    experiment = {**shared.experiments["story-candidate"], "is_active": False}
    assert not is_candidate(Documents(shared.tasks, {"story-candidate": experiment}), "story_candidate")


def test_what_has_been_on_a_share_needs_no_force() -> None:
    note, limits = Note("ada", "stronger"), JumpLimits()
    shared = put_on_share(HEAD, STRONG, 0.1, number=1)
    with pytest.raises(PublishRefused, match=r"tasks\.story\.gravity_strength: 1\.2 -> 8"):
        check(HEAD, STRONG, note, limits)
    check(HEAD, shared, note, limits)
    check(shared, STRONG, note, limits)
    with pytest.raises(PublishRefused, match=r"tasks\.story\.gravity_strength: 1\.2 -> 9"):
        check(shared, documents(DEFAULT, STORY | {"gravity_strength": 9}), note, limits)
    stronger = put_on_share(shared, documents(DEFAULT, STORY | {"gravity_strength": 15}), 0.1, number=2)
    check(shared, stronger, note, limits)  # a candidate may jump: few are served by it
