"""Puts what was measured into the task's document, and publishes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from gateway.calibrate.measure import Measurement
from gateway.calibrate.profile import Profile
from gateway.errors import CalibrationError, ConfigError
from gateway.settings import GatewaySettings
from gateway.stack.environment import described
from gateway.store.centre import Note, Published
from gateway.store.documents import Documents
from gateway.store.lineage import effective
from gateway.store.opening import open_centre


@dataclass(frozen=True, slots=True)
class PublishPlan:
    """Where it goes, why, and whether the buckets' edges go along."""

    settings: GatewaySettings
    note: Note
    with_buckets: bool = False


def publish_calibration(plan: PublishPlan, measured: Measurement, found: Profile) -> Published:
    """Publish the task with its new range and where that was measured; all else stays as it is.

    Raises CalibrationError where the store or one of its guards refuses; nothing is changed then.
    """
    try:
        centre = open_centre(plan.settings)
        head = centre.head()
        documents = calibrated(head.documents, measured, found, with_buckets=plan.with_buckets)
        return centre.publish(documents, plan.note, expected_sha=head.sha)
    except ConfigError as error:
        raise CalibrationError(f"nothing is published: {described(error)}") from error


def calibrated(
    documents: Documents, measured: Measurement, found: Profile, *, with_buckets: bool
) -> Documents:
    """Return the documents with the task's calibration, and its range where it adapts k at all.

    Raises CalibrationError where there is no such task.
    """
    own = documents.tasks.get(measured.task)
    if own is None:
        raise CalibrationError(f"nothing is published: there is no task {measured.task!r} to publish")
    fields: dict[str, Any] = {**own, "calibration": _calibration(measured, found)}
    if effective(documents, measured.task).adaptive is not None:
        fields["adaptive"] = {**(own.get("adaptive") or {}), **_range(found)}
    if with_buckets and found.proposal.edges:
        fields["buckets"] = {"edges": list(found.proposal.edges)}
    return Documents({**documents.tasks, measured.task: fields}, documents.experiments)


def _range(found: Profile) -> Mapping[str, Any]:
    proposal = found.proposal
    return {
        "s_low": proposal.s_low,
        "s_high": proposal.s_high,
        "k_min": proposal.k_min,
        "k_max": proposal.k_max,
        "curve": "geometric",
    }


def _calibration(measured: Measurement, found: Profile) -> Mapping[str, Any]:
    return {
        "model": measured.model,
        "temperature": measured.temperature,
        "s_mean": found.proposal.s_mean,
        "num_prompts": len(measured.turns),
        "num_steps": found.s.num_values,
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
