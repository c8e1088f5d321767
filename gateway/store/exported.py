"""A whole namespace as JSON data: what one store exports, every store can take over."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from pydantic import TypeAdapter, ValidationError

from gateway.errors import ConfigError
from gateway.store.centre import Change, Version
from gateway.store.documents import Documents, documents_from_bytes
from gateway.store.lineage import first_problem

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Exported:
    """What was checked and can be taken over."""

    head_sha: str
    history: tuple[Change, ...]
    """The oldest first."""
    snapshots: Mapping[str, bytes]
    """Canonical JSON by its sha."""

    @property
    def head(self) -> Documents:
        return documents_from_bytes(self.snapshots[self.head_sha])


def exported(
    namespace: str, head: Version, history: Iterable[Change], snapshots: Mapping[str, Documents]
) -> dict[str, Any]:
    """Return JSON data. Snapshots are texts, so that no other program's writing of numbers changes them."""
    return {
        "format": FORMAT,
        "namespace": namespace,
        "head": {"number": head.number, "sha": head.sha},
        "history": [asdict(change) for change in sorted(history, key=lambda change: change.number)],
        "snapshots": {sha: snapshots[sha].as_bytes().decode() for sha in sorted(snapshots)},
    }


def read_exported(data: Mapping[str, Any]) -> Exported:
    """Return what ``exported`` wrote. Raises ConfigError where anything in it is not what its name says."""
    if data.get("format") != FORMAT:
        raise ConfigError(f"format: this program reads exports of format {FORMAT}")
    try:
        head_sha = str(data["head"]["sha"])
        history = TypeAdapter(tuple[Change, ...]).validate_python(list(data["history"]))
        snapshots = {str(sha): _checked(str(sha), text) for sha, text in data["snapshots"].items()}
    except ValidationError as error:
        raise ConfigError(f"the export is damaged: history.{first_problem(error)}") from error
    except (KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"the export is damaged: {error!r}") from error
    if head_sha not in snapshots:
        raise ConfigError("the export is damaged: the head's snapshot is missing")
    _check_history(history, snapshots)
    return Exported(head_sha, history, snapshots)


def check_stored(sha: str, content: bytes) -> bytes:
    """Return ``content``. Raises ConfigError where it is not what it was stored as."""
    if (found := hashlib.sha256(content).hexdigest()) != sha:
        raise ConfigError(f"the snapshot {sha[:12]} is damaged: its content is {found[:12]}")
    return content


def _checked(sha: str, text: Any) -> bytes:
    if not isinstance(text, str):
        raise ConfigError(f"the snapshot {sha[:12]} is damaged: it is no text")
    content = check_stored(sha, text.encode())
    documents_from_bytes(content)
    return content


def _check_history(history: tuple[Change, ...], snapshots: Mapping[str, bytes]) -> None:
    for one, other in pairwise(history):
        if other.number != one.number + 1:
            raise ConfigError(f"the export is damaged: after change {one.number} comes {other.number}")
    for change in history:
        if change.number < 1 or change.to_sha not in snapshots:
            raise ConfigError(f"the export is damaged: the snapshot of change {change.number} is missing")
