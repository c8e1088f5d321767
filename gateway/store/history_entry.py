"""A change as an entry of the history's stream."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from gateway.store.centre import Change, ChangeKind, Note


def fields_of(note: Note, at: float) -> tuple[str, ...]:
    """Return names and values in turn, of all that the script does not know itself."""
    forced = "1" if note.is_forced else "0"
    return ("kind", note.kind, "who", note.who, "why", note.why, "at", repr(at), "forced", forced)


def change_of(entry_id: bytes, fields: Mapping[bytes, bytes]) -> Change:
    """Return the change of one entry; its number is in the entry's id."""
    text = {name.decode(): value.decode() for name, value in fields.items()}
    return Change(
        number=int(entry_id.partition(b"-")[0]),
        kind=cast("ChangeKind", text["kind"]),
        from_sha=text["from"],
        to_sha=text["to"],
        who=text["who"],
        why=text["why"],
        at=float(text["at"]),
        is_forced=text["forced"] == "1",
    )
