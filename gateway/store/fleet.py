"""The head, and what every gateway makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gateway.errors import ConfigError
from gateway.store.centre import Version
from gateway.store.replicas import ReplicaStatus
from gateway.store.snapshot import Snapshot, build_snapshot
from gateway.store.warnings import warnings_of


@dataclass(frozen=True, slots=True)
class ReplicaView:
    """One gateway's report beside the head."""

    report: ReplicaStatus
    has_drifted: bool
    """It serves another version than the head."""
    warnings: tuple[str, ...]
    """Of what it serves, with the models that it has."""


@dataclass(frozen=True, slots=True)
class FleetStatus:
    """``problem`` says what could not be asked; what is known is there all the same."""

    namespace: str
    number: int
    """Of the head; 0 for a folder that was never published to, or where the head is not known."""
    sha: str
    """Empty where the head is not known."""
    warnings: tuple[str, ...]
    """Of the head by itself."""
    replicas: tuple[ReplicaView, ...]
    problem: str | None = None

    @property
    def is_well(self) -> bool:
        """Whether all gateways serve the head and none has an error."""
        return self.problem is None and not any(
            view.has_drifted or view.report.last_error for view in self.replicas
        )


def fleet_status(
    namespace: str, head: Version | None, replicas: Sequence[ReplicaStatus], problem: str | None = None
) -> FleetStatus:
    """Return the head and every gateway's report, held against it."""
    number, sha = (head.number, head.sha) if head else (0, "")
    try:
        snapshot = build_snapshot(head.documents, loaded_at=0.0) if head else None
    except ConfigError as error:
        snapshot = None
        problem = f"the head is invalid, serves nowhere and can be rolled back: {error.file}: {error.message}"
    views = tuple(_view(sha, snapshot, report) for report in replicas)
    return FleetStatus(namespace, number, sha, warnings_of(snapshot) if snapshot else (), views, problem)


def _view(sha: str, snapshot: Snapshot | None, report: ReplicaStatus) -> ReplicaView:
    if snapshot is None or report.sha != sha:
        return ReplicaView(report, bool(sha) and report.sha != sha, report.warnings)
    return ReplicaView(report, False, warnings_of(snapshot, report.models))
