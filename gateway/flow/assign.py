"""Stage 2: which task, and which lane of which experiment.

Assignment is a hash, not a table: the same unit gets the same lane on every gateway, with nothing stored.
Two seeds make two independent hashes: one says whether a unit is in the experiment (below the coverage), the
other in which arm. The arms' starts are fixed, so ramping the coverage up or down moves nobody from one arm
to another (growthbook-js#22).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Literal

from gateway.errors import InvalidRequest
from gateway.flow.turn import Assignment, Turn
from gateway.store.document import Arm, ExperimentDocument, TaskDocument

if TYPE_CHECKING:
    from gateway.flow.deps import Deps

LANE_HEADER = "x-gravity-lane"
DEFAULT_TASK = "default"
TREATMENT = Arm(name="treatment", start=0.0)
CONTROL = Arm(name="control", start=0.0, pruning=False, gravity=False)


async def assign(turn: Turn, deps: Deps) -> Turn:
    """Fix the configuration snapshot, the task and the lane. Raises InvalidRequest where none is such.

    A shadow comes with all three: the control's, of the snapshot that its original was served with.
    """
    if turn.shadow_of:
        return turn
    snapshot = deps.config.snapshot
    task = requested_task(turn.requested_task, snapshot.tasks)
    experiment = experiment_for(task.task_type, snapshot.experiments)
    assignment, arm = choose_lane(turn, experiment)
    if arm.task is not None:
        task = snapshot.tasks.get(arm.task, task)
    return turn.grown(task=task, config_sha=snapshot.sha, assignment=assignment)


def requested_task(name: str, tasks: Mapping[str, TaskDocument]) -> TaskDocument:
    """Return the task that a request names, or the default for "". Raises InvalidRequest."""
    task = tasks.get(name or DEFAULT_TASK)
    if task is not None:
        return task
    if name:
        raise InvalidRequest(
            f"There is no such task. The tasks are: {', '.join(sorted(tasks))}.", param="task"
        )
    return TaskDocument(task_type=DEFAULT_TASK)


def experiment_for(task: str, experiments: Sequence[ExperimentDocument]) -> ExperimentDocument | None:
    """Return the active experiment of a task; of several the first by id, since a turn is in one at most."""
    able = [e for e in experiments if e.is_active and (not e.tasks or task in e.tasks)]
    return min(able, key=lambda experiment: experiment.id, default=None)


def choose_lane(turn: Turn, experiment: ExperimentDocument | None) -> tuple[Assignment, Arm]:
    """Return the assignment and the arm that it means. An override wins over everything."""
    if LANE_HEADER in turn.headers:
        return _overridden(turn.headers[LANE_HEADER], experiment)
    if experiment is None:
        return Assignment(), TREATMENT
    key, is_sticky = targeting_key(turn, experiment.unit_header)
    unit = unit_of(key) if is_sticky else ""
    if position(experiment.enrol_seed, key) >= experiment.coverage:
        return Assignment(
            experiment=experiment.id,
            experiment_version=experiment.version,
            unit=unit,
            is_sticky=is_sticky,
            reason="not_enrolled",
        ), TREATMENT
    arm = arm_at(position(experiment.arm_seed, key), experiment.arms)
    return replace(lane_of(arm, experiment, "split"), unit=unit, is_sticky=is_sticky), arm


def targeting_key(turn: Turn, unit_header: str | None) -> tuple[str, bool]:
    """Return what the lane sticks to and whether it does: header, user, conversation, or this request."""
    if unit_header and (value := turn.headers.get(unit_header.lower())):
        return f"header:{value}", True
    if turn.user:
        return user_key(turn.user), True
    if opening := _conversation_opening(turn.body):
        return f"conversation:{_hash64('conversation', opening):016x}", True
    return f"request:{turn.id}", False


def unit_of(key: str) -> str:
    """Return what stands for a targeting key in records: not to be read, but known to who has the key."""
    return f"{_hash64('unit', key):016x}"


def user_key(user: str) -> str:
    """Return the targeting key of a user."""
    return f"user:{user}"


def position(seed: str, key: str) -> float:
    """Return a unit's place in [0, 1): 64 bits of blake2b."""
    return (_hash64(seed, key) >> 11) / (1 << 53)


def arm_at(place: float, arms: Sequence[Arm]) -> Arm:
    """Return the arm whose range holds ``place``: the last one that starts at or before it."""
    return next(arm for arm in reversed(arms) if arm.start <= place)


def _overridden(lane: str, experiment: ExperimentDocument | None) -> tuple[Assignment, Arm]:
    arms = {arm.name: arm for arm in (TREATMENT, CONTROL, *(experiment.arms if experiment else ()))}
    arm = arms.get(lane)
    if arm is None:
        raise InvalidRequest(
            f"There is no such lane. The lanes are: {', '.join(arms)}.", param="X-Gravity-Lane"
        )
    return lane_of(arm, experiment, "override"), arm


def lane_of(
    arm: Arm, experiment: ExperimentDocument | None, reason: Literal["split", "override", "shadow"]
) -> Assignment:
    """Return what an arm means for a turn, whoever its unit is."""
    return Assignment(
        lane=arm.name,
        experiment=experiment.id if experiment else "",
        experiment_version=experiment.version if experiment else 0,
        reason=reason,
        pruning=arm.pruning,
        gravity=arm.gravity,
    )


def _hash64(seed: str, key: str) -> int:
    digest = blake2b(f"{seed}\0{key}".encode("utf-8", "replace"), digest_size=8).digest()
    return int.from_bytes(digest)


def _conversation_opening(body: Mapping[str, Any]) -> str:
    """What a conversation begins with and keeps while it grows: all up to its first user message."""
    opening = []
    for message in body.get("messages") or ():
        opening.append(f"{message.get('role')}\0{message.get('content')!r}")
        if message.get("role") == "user":
            break
    return "\0".join(opening)
