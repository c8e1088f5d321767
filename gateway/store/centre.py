"""The configuration centre: immutable snapshots, one head that moves by compare-and-set, and its history.

Two stores have this interface: a folder (one machine, git) and Redis (a fleet). All of it blocks; inside the
event loop it belongs into a thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

from gateway.store.documents import Documents

ChangeKind: TypeAlias = Literal["publish", "rollback", "import", "guardrail", "first"]


@dataclass(frozen=True, slots=True)
class Note:
    """Why a change is made, and by whom; it stays in the history."""

    who: str
    why: str
    kind: ChangeKind = "publish"
    is_forced: bool = False
    """Lets a jump through that a guard would hold back."""


@dataclass(frozen=True, slots=True)
class Change:
    """One move of the head."""

    number: int
    """1, 2, 3 …: the version that the head got by it."""
    kind: ChangeKind
    from_sha: str
    """Empty for the first."""
    to_sha: str
    who: str
    why: str
    at: float
    """Unix time, seconds."""
    is_forced: bool = False


@dataclass(frozen=True, slots=True)
class Version:
    """What the head points at, or pointed at."""

    number: int
    """0 for a folder that was never published to."""
    sha: str
    documents: Documents


@dataclass(frozen=True, slots=True)
class FieldChange:
    """One field that differs. ``path`` is ``tasks.NAME.section.field``; None stands for "is not there"."""

    path: str
    before: Any
    after: Any


@dataclass(frozen=True, slots=True)
class Published:
    """What a publish did, or with ``is_dry_run`` would have done."""

    number: int
    sha: str
    from_sha: str
    changes: tuple[FieldChange, ...]
    warnings: tuple[str, ...]
    """What is accepted and has to be known, such as a calibration taken at another temperature."""
    is_dry_run: bool = False


class ConfigCentre(Protocol):
    """All methods raise CentreUnavailable where the store does not answer."""

    namespace: str

    def head(self) -> Version:
        """Return what is in force. Raises UnknownVersion where nothing was ever published."""

    def find(self, reference: str) -> Version:
        """Return a version by ``head``, its number, ``-1`` (the one before the head) or the start of its sha.

        A sha needs at least seven characters. Raises UnknownVersion, also where several begin so.
        """

    def history(self, limit: int = 50) -> tuple[Change, ...]:
        """Return the last changes, the newest first."""

    def publish(
        self, documents: Documents, note: Note, *, expected_sha: str | None = None, is_dry_run: bool = False
    ) -> Published:
        """Make ``documents`` the head, all or nothing. ``expected_sha`` is the head that they were made from.

        Raises ConfigError where they are invalid, PublishRefused where a guard holds them back (it names the
        fields), PublishConflict where the head is another than expected. With documents equal to the head
        nothing is written and ``from_sha == sha``.
        """

    def rollback(self, reference: str, note: Note, *, is_dry_run: bool = False) -> Published:
        """Publish an old version's content again, in today's schema. Guards of jumps do not apply."""

    def export(self) -> Mapping[str, Any]:
        """Return the whole namespace as JSON data: head, history, snapshots."""

    def import_(self, exported: Mapping[str, Any], note: Note) -> Published:
        """Take over what ``export`` gave: all snapshots and the history, the exported head on top.

        Raises ConfigError where it is damaged: every snapshot is checked against its sha first.
        """
