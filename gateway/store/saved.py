"""The versions of a folder: ``.versions/SHA`` with the files as they were, and the history beside them.

| path | what it holds |
|---|---|
| ``lock`` | held while a publish writes, and shared while the files are read |
| ``history.jsonl`` | one change a line, the oldest first |
| ``pending.json`` | a publish that has been decided and is being written |
| ``SHA/documents.json`` | the canonical JSON, whose sha256 is the folder's name |
| ``SHA/files.json`` | the sha256 of each file |
| ``SHA/tasks``, ``SHA/experiments`` | the files, byte for byte |
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from gateway.errors import ConfigError, UnknownVersion
from gateway.store.backend import KINDS, SourceFile
from gateway.store.centre import Change
from gateway.store.documents import Documents, documents_from_bytes
from gateway.store.exported import check_stored
from gateway.store.publish_lock import VERSIONS_FOLDER, write_whole

MAX_CHANGES = 10_000
_CHANGE = TypeAdapter(Change)


@dataclass(frozen=True, slots=True)
class SavedVersions:
    """Reads and writes ``.versions`` of one configuration folder."""

    folder: Path
    """The configuration folder itself."""

    @property
    def root(self) -> Path:
        return self.folder / VERSIONS_FOLDER

    def history(self) -> tuple[Change, ...]:
        """Return all changes, the newest first."""
        try:
            lines = (self.root / "history.jsonl").read_text().splitlines()
        except FileNotFoundError:
            return ()
        try:
            return tuple(_CHANGE.validate_json(line) for line in reversed(lines))
        except ValidationError as error:
            raise ConfigError("is damaged", file=f"{VERSIONS_FOLDER}/history.jsonl") from error

    def write_history(self, changes: Sequence[Change]) -> None:
        """Write ``changes``, the oldest first, in place of what is there; versions that they lead to stay."""
        kept = changes[-MAX_CHANGES:]
        text = "".join(json.dumps(asdict(change), ensure_ascii=False) + "\n" for change in kept)
        write_whole(self.root / "history.jsonl", text.encode())
        if len(kept) < len(changes):
            used = {sha for change in kept for sha in (change.from_sha, change.to_sha)}
            for sha in self.shas():
                if sha not in used:
                    shutil.rmtree(self.root / sha)

    def shas(self) -> list[str]:
        """Return the names of all versions."""
        return [path.parent.name for path in self.root.glob("*/documents.json")]

    def save(self, documents: Documents, files: Sequence[SourceFile]) -> None:
        """Keep ``files``, which read as ``documents``, in place of other files with the same meaning."""
        target = self.root / documents.sha
        is_there = (target / "documents.json").exists()
        if is_there and (not files or self._has(documents.sha, files)):
            return
        fresh = Path(tempfile.mkdtemp(prefix=".new-", dir=self.root))
        for kind in KINDS:
            (fresh / kind).mkdir()
        for file in files:
            write_whole(fresh / file.name, file.content)
        marks = {file.name: hashlib.sha256(file.content).hexdigest() for file in files}
        write_whole(fresh / "files.json", json.dumps(marks, indent=1, sort_keys=True).encode())
        write_whole(fresh / "documents.json", documents.as_bytes())
        fresh.chmod(0o755)
        if target.exists():
            old = Path(tempfile.mkdtemp(prefix=".old-", dir=self.root))
            target.rename(old / target.name)
            fresh.rename(target)
            shutil.rmtree(old)
        else:
            fresh.rename(target)

    def _has(self, sha: str, files: Sequence[SourceFile]) -> bool:
        try:
            return {file.name: file.content for file in self.files(sha)} == {
                file.name: file.content for file in files
            }
        except (ConfigError, OSError):
            return False  # damaged: written anew

    def save_broken(self, files: Sequence[SourceFile]) -> None:
        """Keep files that no document can be read from; they have no version, but are not lost."""
        root = Path(tempfile.mkdtemp(prefix="broken-", dir=self.root))
        for file in files:
            path = root / file.name
            path.parent.mkdir(exist_ok=True)
            write_whole(path, file.content)

    def documents(self, sha: str) -> Documents:
        """Return a version. Raises UnknownVersion where it is not there, ConfigError where it is damaged."""
        try:
            content = (self.root / sha / "documents.json").read_bytes()
        except FileNotFoundError as error:
            raise UnknownVersion(f"the snapshot {sha[:12]} is not stored any more") from error
        return documents_from_bytes(check_stored(sha, content))

    def files(self, sha: str) -> tuple[SourceFile, ...]:
        """Return a version's files; none where it came without. Raises ConfigError where one is damaged."""
        root = self.root / sha
        marks = json.loads((root / "files.json").read_bytes())
        found = []
        for name, mark in marks.items():
            content = (root / name).read_bytes()
            if hashlib.sha256(content).hexdigest() != mark:
                raise ConfigError("the saved file is damaged", file=f"{VERSIONS_FOLDER}/{sha}/{name}")
            kind, _, _ = name.partition("/")
            found.append(SourceFile("tasks" if kind == "tasks" else "experiments", name, content))
        return tuple(found)

    def pending(self) -> Change | None:
        """Return the change that has been decided and may not be written yet."""
        try:
            return _CHANGE.validate_json((self.root / "pending.json").read_bytes())
        except FileNotFoundError:
            return None

    def decide(self, change: Change) -> None:
        """From here on the change is made, also where this process ends now."""
        write_whole(self.root / "pending.json", json.dumps(asdict(change)).encode())

    def finished(self) -> None:
        (self.root / "pending.json").unlink(missing_ok=True)
