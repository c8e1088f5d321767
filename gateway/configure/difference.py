"""``gravity config diff``: what differs between two versions or folders."""

from __future__ import annotations

from gateway.configure.speech import FINE, FOUND, Tell, answered, change_lines
from gateway.stack.target import Target
from gateway.store.difference import diff


def run_diff(target: Target, one: str | None, other: str | None, tell: Tell) -> int:
    """Tell the fields that differ and return 1; or nothing, and return 0, as ``diff`` does.

    Without arguments: what was published last against the folder; with one, that against the folder.
    """
    return answered(lambda: _diff(target, one, other, tell))


def _diff(target: Target, one: str | None, other: str | None, tell: Tell) -> int:
    before = target.documents(one or _last_published(target))
    after = target.documents(other or str(target.folder))
    changes = diff(before, after)
    tell(changes, change_lines(changes))
    return FOUND if changes else FINE


def _last_published(target: Target) -> str:
    """Return the head; for a folder, which may have been edited since, what was published last."""
    if target.settings().config_store == "redis":
        return "head"
    last = target.centre().history(1)
    return last[0].to_sha if last else "head"
