"""What every store does with a change before it writes anything: read, compare, hold back, build."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from gateway.errors import ConfigError, PublishConflict
from gateway.store.centre import FieldChange, Note, Published, Version
from gateway.store.difference import diff
from gateway.store.documents import Documents
from gateway.store.editing import edited
from gateway.store.guards import JumpLimits, check
from gateway.store.snapshot import Snapshot, build_snapshot
from gateway.store.warnings import warnings_of

MAX_SNAPSHOT_BYTES = 4 * 2**20
_WRITTEN_BY_PEOPLE = frozenset({"publish", "first"})
_GUARDED = frozenset({"publish", "import"})
_NOTHING = Documents({}, {})


def builds_nothing(snapshot: Snapshot) -> None:
    """The dry build of a program that has nothing to build."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What a store holds a change against."""

    limits: JumpLimits = JumpLimits()
    dry_build: Callable[[Snapshot], None] = builds_nothing
    """Builds all that a gateway makes of a snapshot; raises ConfigError where that fails."""
    clock: Callable[[], float] = time.time


@dataclass(frozen=True, slots=True)
class Proposal:
    """A change that may be written."""

    documents: Documents
    sha: str
    changes: tuple[FieldChange, ...]
    warnings: tuple[str, ...]

    def as_published(self, number: int, from_sha: str, is_dry_run: bool = False) -> Published:
        return Published(number, self.sha, from_sha, self.changes, self.warnings, is_dry_run)


def proposed(before: Version | None, documents: Documents, note: Note, rules: Rules) -> Proposal:
    """Check ``documents`` against the schema, each other, the guards and the dry build.

    ``before`` is None where there is nothing to compare with. Raises ConfigError or PublishRefused.
    """
    current = before.documents if before else None
    if note.kind in _WRITTEN_BY_PEOPLE:
        documents = edited(documents, current)
    if (size := len(documents.as_bytes())) > MAX_SNAPSHOT_BYTES:
        raise ConfigError(f"all documents together have {size} bytes; {MAX_SNAPSHOT_BYTES} are allowed")
    snapshot = build_snapshot(documents, rules.clock())
    if current is not None and note.kind in _GUARDED:
        check(current, documents, note, rules.limits)
    rules.dry_build(snapshot)
    changes = diff(current or _NOTHING, documents)
    return Proposal(documents, snapshot.sha, changes, warnings_of(snapshot))


def check_expected(before: Version | None, expected_sha: str | None) -> None:
    """Raise PublishConflict where the head is another than the change was made from."""
    sha = before.sha if before else ""
    if expected_sha is not None and expected_sha != sha:
        raise conflict(before.number if before else 0, sha, expected_sha)


def conflict(number: int, sha: str, expected_sha: str) -> PublishConflict:
    """Return the error that names both heads."""
    there = f"version {number} ({sha[:12]})" if sha else "empty"
    expected = expected_sha[:12] or "an empty one"
    return PublishConflict(
        f"the head is {there} and no longer {expected}: look at what changed and publish again"
    )
