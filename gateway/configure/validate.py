"""``gravity config validate``: are these documents what a gateway would serve?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gateway.configure.listing import overview_lines
from gateway.configure.sources import read_sources
from gateway.configure.speech import FINE, Tell, answered, tell_people
from gateway.flow.dry_build import dry_build
from gateway.stack.target import Target, head_or_empty
from gateway.store.amendment import EMPTY, Amendment, amended
from gateway.store.centre import Version
from gateway.store.overview import overview
from gateway.store.snapshot import build_snapshot


def run_validate(paths: Sequence[Path], target: Target, tell: Tell = tell_people) -> int:
    """Print what the folder holds, or the head with single files in it, and return 0.

    Where something is wrong, print what and where, and return 1.
    """
    return answered(lambda: _validate(paths or (target.folder,), target, tell))


def _validate(paths: Sequence[Path], target: Target, tell: Tell) -> int:
    sources = read_sources(paths)
    head = EMPTY if sources.is_whole else head_or_empty(target.centre())
    documents = amended(head, Amendment(sources.files, sources.is_whole))
    dry_build(build_snapshot(documents, loaded_at=0.0))
    found = overview(Version(head.number, documents.sha, documents))
    tell(found, [*overview_lines(found), f"valid: {', '.join(map(str, paths))}, sha {found.sha}"])
    return FINE
