"""``gravity config publish | rollback``: another head, with who and why."""

from __future__ import annotations

import getpass
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gateway.configure.sources import Sources, read_sources
from gateway.configure.speech import FINE, Tell, answered, change_lines, tell_people, version_text
from gateway.stack.target import Target, head_or_empty
from gateway.store.amendment import Amendment, amended
from gateway.store.centre import Note, Published, Version

MIN_SHA = 7


@dataclass(frozen=True, slots=True)
class PublishOptions:
    """What is published, and how. Without paths it is the folder, or nothing where something is removed."""

    note: Note
    paths: Sequence[Path] = ()
    removed: tuple[str, ...] = ()
    share: float | None = None
    expect: str | None = None
    """The head that the change was made from: its sha or the start of it."""
    is_dry_run: bool = False
    tell: Tell = tell_people


def run_publish(target: Target, options: PublishOptions) -> int:
    """Publish and say what changed; return 1 where it is invalid, refused, or the head is another."""
    return answered(lambda: _publish(target, options))


def run_rollback(target: Target, reference: str, options: PublishOptions) -> int:
    """Publish an old version's content again; of the options note, dry run and how it is told count."""
    return answered(lambda: _rollback(target, reference, options))


def login_name() -> str:
    """Return who runs this, as the system knows it."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "unknown"


def _publish(target: Target, options: PublishOptions) -> int:
    centre = target.centre()
    sources = _sources(target, options)
    head = head_or_empty(centre)
    documents = amended(head, Amendment(sources.files, sources.is_whole, options.removed, options.share))
    published = centre.publish(
        documents, options.note, expected_sha=_expected(head, options), is_dry_run=options.is_dry_run
    )
    return report(published, options)


def _sources(target: Target, options: PublishOptions) -> Sources:
    if options.removed and not options.paths:
        return Sources((), is_whole=False)
    return read_sources(options.paths or (target.folder,))


def _expected(head: Version, options: PublishOptions) -> str:
    """Return the sha that must still be the head: what was said, else what was just read."""
    said = options.expect
    if said is None or (len(said) >= MIN_SHA and head.sha.startswith(said)):
        return head.sha
    return said


def _rollback(target: Target, reference: str, options: PublishOptions) -> int:
    rolled_back = target.centre().rollback(reference, options.note, is_dry_run=options.is_dry_run)
    return report(rolled_back, options)


def report(published: Published, options: PublishOptions) -> int:
    """Tell what changed, what has to be known of it, and the version that it became; return 0."""
    warnings = [f"warning: {warning}" for warning in published.warnings]
    lines = [*change_lines(published.changes), *warnings, *_outcome_lines(published, options.share)]
    options.tell(published, lines)
    return FINE


def _outcome_lines(published: Published, share: float | None) -> list[str]:
    now = version_text(published.number, published.sha)
    if published.sha == published.from_sha:
        return [f"nothing to change: {now} has it all"]
    if published.is_dry_run:
        return [f"a dry run, nothing is published: it would be {now}"]
    lines = [f"published {now} in the place of {published.from_sha[:12] or 'nothing'}"]
    if share is not None:
        lines.append(
            f"{share:.0%} of the traffic are served by it. Publish the same without --share for "
            "everybody, or go back: gravity config rollback -1 --why REASON"
        )
    return lines
