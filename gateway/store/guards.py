"""Guards: a number that jumps, or an arm that moves under a running experiment, is held back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gateway.errors import PublishRefused
from gateway.settings import GatewaySettings
from gateway.store.canary import has_been_on_share, is_candidate
from gateway.store.centre import FieldChange, Note
from gateway.store.document import TaskDocument
from gateway.store.documents import Documents
from gateway.store.lineage import effective
from gateway.store.snapshot import experiment_of
from gateway.store.warnings import temperature_of

_FIXED_FIELDS = ("arms", "enrol_seed", "arm_seed", "unit_header")
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class JumpLimits:
    """The largest change of a number that one publish may make."""

    strength: float = 1.0
    temperature: float = 0.3
    k_factor: float = 2.0
    budget_factor: float = 2.0

    @classmethod
    def of(cls, settings: GatewaySettings) -> JumpLimits:
        return cls(
            settings.config_jump_strength,
            settings.config_jump_temperature,
            settings.config_jump_k_factor,
            settings.config_jump_budget_factor,
        )


def check(before: Documents, after: Documents, note: Note, limits: JumpLimits) -> None:
    """Raise PublishRefused, naming each field, where a guard holds the change back.

    A jump passes with force and a reason. An arm that moves never does: it would mix two experiments.
    """
    if moved := moved_arms(before, after):
        raise PublishRefused(
            f"{_listed(moved)}: units would change arms inside a version; raise the experiment's version too",
            fields=tuple(each.path for each in moved),
        )
    if note.is_forced and not note.why.strip():
        raise PublishRefused("a forced change needs a reason: it stays in the history")
    if not note.is_forced and (found := jumps(before, after, limits)):
        raise PublishRefused(
            f"{_listed(found)}: too far at once. --force with a reason publishes it all the same, "
            "--share tries it on a share of the traffic first",
            fields=tuple(each.path for each in found),
        )


def jumps(before: Documents, after: Documents, limits: JumpLimits) -> tuple[FieldChange, ...]:
    """Return the fields of effective tasks that change by more than ``limits`` allow, by path.

    So a number of ``default`` counts for every task that inherits it. A new task jumps from nowhere: no
    request could name it before, and an arm that tries it has its share of the traffic. Nor has a section or
    a bound that comes or goes a distance. What a share of the traffic tries or has tried is no jump.
    """
    found = []
    for name in sorted(before.tasks.keys() & after.tasks.keys()):
        if has_been_on_share(before, after, name) or is_candidate(after, name):
            continue
        one, other = _numbers(effective(before, name)), _numbers(effective(after, name))
        allowed = _allowed(limits)
        found += [
            FieldChange(f"tasks.{name}.{field}", one[field], other[field])
            for field in one
            if _is_jump(one[field], other[field], *allowed[field])
        ]
    return tuple(found)


def moved_arms(before: Documents, after: Documents) -> tuple[FieldChange, ...]:
    """Return what may not change inside one version of an experiment that runs, by path."""
    return tuple(
        change
        for experiment_id in sorted(before.experiments.keys() & after.experiments.keys())
        for change in _moved(before, after, experiment_id)
    )


def _moved(before: Documents, after: Documents, experiment_id: str) -> Iterator[FieldChange]:
    one, other = experiment_of(before, experiment_id), experiment_of(after, experiment_id)
    if other.version > one.version or not (one.is_active or other.is_active):
        return
    old, new = (experiment.model_dump(mode="json") for experiment in (one, other))
    for field in _FIXED_FIELDS:
        if old[field] != new[field]:
            yield FieldChange(f"experiments.{experiment_id}.{field}", old[field], new[field])


def _numbers(task: TaskDocument) -> Mapping[str, float | None]:
    adaptive = task.adaptive
    return {
        "gravity_strength": task.gravity_strength,
        "adaptive.k_min": adaptive.k_min if adaptive else None,
        "adaptive.k_max": adaptive.k_max if adaptive else None,
        "sampling.temperature": temperature_of(task),
        "context.token_budget": task.context.token_budget,
    }


def _allowed(limits: JumpLimits) -> Mapping[str, tuple[float, bool]]:
    """Return the limit of each field, and whether it is a factor."""
    return {
        "gravity_strength": (limits.strength, False),
        "adaptive.k_min": (limits.k_factor, True),
        "adaptive.k_max": (limits.k_factor, True),
        "sampling.temperature": (limits.temperature, False),
        "context.token_budget": (limits.budget_factor, True),
    }


def _is_jump(before: float | None, after: float | None, limit: float, is_factor: bool) -> bool:
    if before is None or after is None:
        return False
    distance = max(before, after) / min(before, after) if is_factor else abs(after - before)
    return distance > limit + _ROUNDING


def _listed(changes: tuple[FieldChange, ...]) -> str:
    return "; ".join(f"{each.path}: {_shown(each.before)} -> {_shown(each.after)}" for each in changes)


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
