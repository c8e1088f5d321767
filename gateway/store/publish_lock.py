"""How readers of a folder and one who publishes to it keep out of each other's way.

A publish holds the lock while it writes its files. Where it died half-way, ``pending.json`` says which
version the folder was to become, and readers take that version's saved files.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

VERSIONS_FOLDER = ".versions"


@contextlib.contextmanager
def shared_lock(folder: Path) -> Iterator[None]:
    """Wait until nobody publishes to ``folder``; a folder that was never published to has no lock."""
    try:
        lock = (folder / VERSIONS_FOLDER / "lock").open("rb")
    except OSError:
        yield
        return
    with lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        yield


@contextlib.contextmanager
def exclusive_lock(folder: Path) -> Iterator[None]:
    """Wait until nobody reads or publishes. Raises OSError where the folder cannot be written."""
    root = folder / VERSIONS_FOLDER
    root.mkdir(exist_ok=True)
    if not (root / ".gitignore").exists():
        (root / ".gitignore").write_text("*\n")
    with (root / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def files_root(folder: Path) -> Path:
    """Return where the files in force lie: ``folder``, or the version that a publish died over."""
    try:
        pending = json.loads((folder / VERSIONS_FOLDER / "pending.json").read_bytes())
    except OSError:
        return folder
    return folder / VERSIONS_FOLDER / str(pending["to_sha"])


def head_number(folder: Path) -> int:
    """Return the number of the last publish; 0 where there was none."""
    root = folder / VERSIONS_FOLDER
    for name in ("pending.json", "history.jsonl"):
        with contextlib.suppress(OSError):
            lines = (root / name).read_bytes().splitlines()
            return int(json.loads(lines[-1])["number"]) if lines else 0
    return 0


def write_whole(path: Path, content: bytes) -> None:
    """Replace ``path`` at once, on disk before this returns: readers see the old content or the new."""
    handle, name = tempfile.mkstemp(prefix=".new-", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(path.stat().st_mode & 0o777 if path.exists() else 0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
