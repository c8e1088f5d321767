"""Which version a person means: ``head``, a number, ``-1``, or the start of a sha."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from gateway.errors import UnknownVersion
from gateway.store.centre import Change

_MIN_PREFIX = 7


def sha_of(reference: str, head_sha: str, history: Sequence[Change], shas: Collection[str]) -> str:
    """Return the sha that ``reference`` means. ``history`` is the newest first, ``shas`` all that are stored.

    Raises UnknownVersion where there is none such, or several.
    """
    if reference == "head":
        return head_sha
    if re.fullmatch(r"-[1-9]\d{0,5}", reference):
        return _earlier(int(reference[1:]), head_sha, history)
    if re.fullmatch(r"\d{1,6}", reference):
        return _numbered(int(reference), history)
    if re.fullmatch(rf"[0-9a-f]{{{_MIN_PREFIX},64}}", reference):
        return _beginning(reference, {*shas, head_sha})
    raise UnknownVersion(
        f"{reference!r} is no version: head, a number, -1 for the one before the head, "
        f"or at least {_MIN_PREFIX} characters of a sha"
    )


def number_of(sha: str, history: Sequence[Change]) -> int:
    """Return the last number under which ``sha`` was the head; 0 where it never was by a publish."""
    return next((change.number for change in history if change.to_sha == sha), 0)


def _earlier(steps: int, head_sha: str, history: Sequence[Change]) -> str:
    earlier = [change.from_sha for change in history]
    if history and history[0].to_sha != head_sha:  # files were edited by hand after the last publish
        earlier.insert(0, history[0].to_sha)
    if steps > len(earlier) or not earlier[steps - 1]:
        raise UnknownVersion(f"there is no version {steps} before the head")
    return earlier[steps - 1]


def _numbered(number: int, history: Sequence[Change]) -> str:
    for change in history:
        if change.number == number:
            return change.to_sha
        if change.number == number + 1 and number == 0 and change.from_sha:
            return change.from_sha
    raise UnknownVersion(f"there is no version {number}, or it has left the history")


def _beginning(prefix: str, shas: Collection[str]) -> str:
    found = [sha for sha in shas if sha.startswith(prefix)]
    if not found:
        raise UnknownVersion(f"there is no version {prefix}")
    if len(found) > 1:
        raise UnknownVersion(f"{len(found)} versions begin with {prefix}")
    return found[0]
