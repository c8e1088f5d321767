"""``gravity diagnose ID``: one turn, with the likeliest tokens where they can be had."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from redis.asyncio import Redis

from gateway.diagnose.likeliest import Likeliest, Shown, likeliest
from gateway.diagnose.read import case_of, num_choices
from gateway.errors import ReplayError, TraceError
from gateway.lab.diagnosis.case import Case, Finding, StepPlace, is_told
from gateway.lab.diagnosis.diagnose import diagnose
from gateway.replay.recorded import read_turn
from gateway.replay.worker import WorkerPlan, worker_of
from gateway.trace.reading import read_record
from gateway.trace.steps import wait_for_steps

MAX_SHOWN_STEPS = 3
"""Of each finding."""


@dataclass(frozen=True, slots=True)
class TurnDiagnosis:
    """A turn, what is wrong with it, and what could have come at the steps that show it."""

    case: Case
    findings: tuple[Finding, ...]
    shown: Mapping[StepPlace, Shown] = field(default_factory=dict)
    not_shown: str = ""
    """Why the likeliest tokens, or the steps themselves, are not there."""


async def diagnose_turn(
    redis: Redis, turn_id: str, candidates: Sequence[str], wait_s: float
) -> TurnDiagnosis:
    """Read a turn and say what is wrong with it; no worker is started for it.

    Raises TraceError where there is no such turn. Without its steps, which are waited for ``wait_s``, the
    record alone is looked at.
    """
    record = await read_record(redis, turn_id)
    if record is None:
        raise TraceError(f"there is no turn {turn_id!r}: a wrong id, another Redis, or its lifetime is over")
    try:
        case = case_of(record, await wait_for_steps(redis, turn_id, num_choices(record), timeout_s=wait_s))
    except TraceError as error:
        case = case_of(record, ())
        return TurnDiagnosis(case, diagnose(case), not_shown=str(error))
    findings = diagnose(case)
    wanted = {place for finding in findings for place in telling(case, finding.steps)}
    try:
        seen = await _seen(redis, case, wanted, candidates)
    except ReplayError as error:
        return TurnDiagnosis(case, findings, not_shown=str(error))
    case = replace(case, environment_now=seen.environment)
    return TurnDiagnosis(case, diagnose(case), seen.steps)


def telling(case: Case, steps: Sequence[StepPlace]) -> tuple[StepPlace, ...]:
    """Return the few steps of a finding at which the model was least sure, in their order."""
    by_entropy = sorted(steps, key=lambda place: -case.step(place).entropy_nats)
    return tuple(sorted(by_entropy[:MAX_SHOWN_STEPS], key=steps.index))


async def _seen(redis: Redis, case: Case, wanted: set[StepPlace], candidates: Sequence[str]) -> Likeliest:
    if not any(answer.steps for answer in case.answers):
        raise ReplayError("it has no steps")
    if not all(is_told(answer.steps) for answer in case.answers):
        raise ReplayError("its tokens were not kept")
    turn = await read_turn(redis, case.turn_id)
    async with worker_of(case.model, WorkerPlan(candidates)) as client:
        return await likeliest(client, turn, case, wanted)
