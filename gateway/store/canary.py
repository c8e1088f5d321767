"""A change of tasks for a share of traffic first: a candidate is a task of its own and an experiment's arm.

The task stays as it is and is the control. When the candidate is published for everybody, candidate and
experiment go. Everything here is pure: documents in, documents out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

from pydantic import Field

from gateway.errors import ConfigError, PublishRefused
from gateway.store.document import ExperimentDocument, Guardrail, TaskDocument
from gateway.store.documents import Documents
from gateway.store.lineage import DEFAULT_TASK, effective
from gateway.store.snapshot import experiment_of

MAX_SHARE = 0.5
"""Treatment and control get as much each, so that a larger share would leave no control."""
TREATMENT, CONTROL = "treatment", "control"
GUARDRAILS = (
    Guardrail(metric="error", better="lower", margin=0.02, action="roll_back"),
    Guardrail(metric="rep_4", better="lower", margin=0.05, action="roll_back"),
    Guardrail(metric="latency_s", better="lower", margin=2.0, action="roll_back"),
    Guardrail(metric="theme_relevance", better="higher", margin=0.05, action="roll_back"),
)
"""What a candidate may cost before it is rolled back: 2 errors more in 100 turns, one 4-gram more in 20 that
is a repetition, 2 seconds, and 0.05 of the cosine between answer and question."""
MAX_NAME = 64

Share: TypeAlias = Annotated[float, Field(gt=0.0, le=MAX_SHARE)]
_SAYS_NOTHING_OF_ANSWERS = frozenset({"task_type", "description", "schema_version"})


def candidate_name(task: str) -> str:
    """Name of the task document that a share of ``task``'s requests is served by."""
    return f"{task}_candidate"


def share_id(task: str) -> str:
    """Id of the experiment that gives ``task``'s candidate its share."""
    return f"{task}-candidate"


def put_on_share(head: Documents, wanted: Documents, share: float, number: int) -> Documents:
    """Return ``head`` with a candidate and an experiment for every task that ``wanted`` changes.

    ``share`` is what the candidate gets of all units, at most MAX_SHARE. ``number`` is the version that the
    head will get: the experiment's version, so that outcomes of an earlier candidate are not counted. The
    same candidate on another share keeps its experiment's version and seeds, and nobody changes arm. Tasks
    that are new are in force at once, as nobody was served by them.

    Raises PublishRefused where a change cannot be put on a share, and says why.
    """
    if not 0.0 < share <= MAX_SHARE:
        raise ConfigError(f"a share is above 0 and at most {MAX_SHARE:g}, not {share:g}", file="--share")
    _require_tasks_alone(head, wanted)
    tasks, experiments = dict(head.tasks), dict(head.experiments)
    for task in changed_tasks(head, wanted):
        _require_free(head, task)
        name, experiment = candidate_name(task), share_id(task)
        if len(name) > MAX_NAME:
            raise PublishRefused(f"tasks.{task}: the name is too long for a candidate's, {name!r}")
        is_same = is_on_share(head, task) and _serves_alike(effective(wanted, task), effective(head, name))
        if not is_same:
            tasks[name] = _candidate(head, wanted, task)
        before = head.experiments.get(experiment) if is_same else None
        experiments[experiment] = _experiment(task, share, number, before)
    tasks |= {name: document for name, document in wanted.tasks.items() if name not in head.tasks}
    return Documents(tasks, experiments)


def without_decided_shares(head: Documents, wanted: Documents) -> Documents:
    """Return ``wanted`` without candidates and experiments whose task is published for everybody.

    Their control is not what it was, whether the candidate has become the task or something else has.
    """
    shared = shared_tasks(head)
    decided = [task for task in shared if task not in wanted.tasks or _is_changed(head, wanted, task)]
    candidates, experiments = {candidate_name(task) for task in decided}, {share_id(task) for task in decided}
    return Documents(
        {name: each for name, each in wanted.tasks.items() if name not in candidates},
        {name: each for name, each in wanted.experiments.items() if name not in experiments},
    )


def has_been_on_share(head: Documents, wanted: Documents, task: str) -> bool:
    """Whether ``wanted`` makes of ``task`` what a share of its requests is served by already."""
    if task not in wanted.tasks or not is_on_share(head, task):
        return False
    return _serves_alike(effective(wanted, task), effective(head, candidate_name(task)))


def is_candidate(documents: Documents, name: str) -> bool:
    """Whether the task ``name`` serves as a candidate alone, on a share."""
    return any(candidate_name(task) == name for task in shared_tasks(documents))


def shared_tasks(documents: Documents) -> tuple[str, ...]:
    """Return the tasks that have a candidate on a share."""
    return tuple(task for task in sorted(documents.tasks) if is_on_share(documents, task))


def is_on_share(documents: Documents, task: str) -> bool:
    """Whether a candidate of ``task`` serves a share of its requests."""
    experiment = _share_of(documents, task)
    is_there = candidate_name(task) in documents.tasks
    return is_there and experiment is not None and experiment.is_active


def changed_tasks(head: Documents, wanted: Documents) -> tuple[str, ...]:
    """Return the tasks of both whose requests would be served otherwise, by inheritance too."""
    both = sorted(head.tasks.keys() & wanted.tasks.keys())
    return tuple(task for task in both if _is_changed(head, wanted, task))


def _share_of(documents: Documents, task: str) -> ExperimentDocument | None:
    """Return the experiment that gives ``task``'s candidate its share, or gave it before it was stopped."""
    if share_id(task) not in documents.experiments:
        return None
    experiment = experiment_of(documents, share_id(task))
    arms = {arm.name: arm.task for arm in experiment.arms}
    is_ours = experiment.tasks == (task,) and arms == {TREATMENT: candidate_name(task), CONTROL: None}
    return experiment if is_ours else None


def _is_changed(head: Documents, wanted: Documents, task: str) -> bool:
    return not _serves_alike(effective(head, task), effective(wanted, task))


def _serves_alike(one: TaskDocument, other: TaskDocument) -> bool:
    return _served(one) == _served(other)


def _served(task: TaskDocument) -> dict[str, Any]:
    return task.model_dump(exclude=set(_SAYS_NOTHING_OF_ANSWERS))


def _require_tasks_alone(head: Documents, wanted: Documents) -> None:
    ours = [task for task in head.tasks if _share_of(head, task) is not None]
    candidates, shares = set(map(candidate_name, ours)), set(map(share_id, ours))
    if gone := sorted(head.tasks.keys() - wanted.tasks.keys() - candidates):
        raise PublishRefused(
            f"tasks.{gone[0]}: a removal cannot be put on a share: publish it without one",
            fields=(f"tasks.{gone[0]}",),
        )
    for name in sorted(head.experiments.keys() | wanted.experiments.keys()):
        if name not in shares and head.experiments.get(name) != wanted.experiments.get(name):
            raise PublishRefused(
                f"experiments.{name}: an experiment cannot be put on a share: publish it by itself first",
                fields=(f"experiments.{name}",),
            )


def _require_free(head: Documents, task: str) -> None:
    for name in sorted(head.experiments):
        experiment = experiment_of(head, name)
        applies = not experiment.tasks or task in experiment.tasks
        if name != share_id(task) and experiment.is_active and applies:
            raise PublishRefused(
                f"tasks.{task}: its requests are in the active experiment {name!r} already: "
                "set is_active: false there first, or publish without a share",
                fields=(f"tasks.{task}",),
            )
    name = candidate_name(task)
    if name in head.tasks and _share_of(head, task) is None:
        raise PublishRefused(
            f"tasks.{name}: is there, and no candidate on a share: remove it first", fields=(f"tasks.{name}",)
        )


def _candidate(head: Documents, wanted: Documents, task: str) -> Mapping[str, Any]:
    inherited = head.tasks.get(DEFAULT_TASK), wanted.tasks.get(DEFAULT_TASK)
    if task != DEFAULT_TASK and inherited[0] == inherited[1]:
        return {**wanted.tasks[task], "task_type": candidate_name(task)}
    # What it inherits changes as well, and the default in force is still the old one: every field is written.
    return effective(wanted, task).model_dump(mode="json") | {"task_type": candidate_name(task)}


def _experiment(task: str, share: float, number: int, before: Mapping[str, Any] | None) -> Mapping[str, Any]:
    if before is not None:
        return {**before, "coverage": 2 * share}
    name = share_id(task)
    document = ExperimentDocument.model_validate(
        {
            "id": name,
            "version": number,
            "description": f"A share of {task}'s requests is served by {candidate_name(task)}.",
            "tasks": [task],
            "coverage": 2 * share,
            "enrol_seed": f"{name}/enrol/{number}",
            "arm_seed": f"{name}/arm/{number}",
            "arms": [
                {"name": TREATMENT, "start": 0.0, "task": candidate_name(task)},
                {"name": CONTROL, "start": 0.5},
            ],
            "control_arm": CONTROL,
            "primary_metric": "theme_relevance",
            "primary_better": "higher",
            "guardrails": GUARDRAILS,
        }
    )
    return document.model_dump(mode="json", exclude_unset=True)
