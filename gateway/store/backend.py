"""Configuration as a folder of files: ``tasks/*.yaml`` and ``experiments/*.yaml``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from gateway.errors import ConfigError
from gateway.store.publish_lock import files_root, head_number, shared_lock

Kind: TypeAlias = Literal["tasks", "experiments"]
Fingerprint: TypeAlias = tuple[tuple[str, int, int, int], ...]
"""Name, inode, size in bytes and time of change in nanoseconds of every file."""

KINDS: tuple[Kind, ...] = ("tasks", "experiments")
_SUFFIXES = frozenset({".yaml", ".yml", ".json"})
_MAX_BYTES = 2**20
_NUM_READS = 5


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One document as it was written."""

    kind: Kind
    name: str
    """The path from the configuration folder, for messages."""
    content: bytes


@dataclass(frozen=True, slots=True)
class FolderContent:
    """All documents of a folder at one moment."""

    files: tuple[SourceFile, ...]
    fingerprint: Fingerprint
    number: int
    """Of the last publish; 0 where there was none."""


@dataclass(frozen=True, slots=True)
class ConfigFolder:
    """Reads all documents of a folder as they stood at one moment."""

    path: Path

    def fingerprint(self) -> Fingerprint:
        """Say what the files look like from outside; equal fingerprints mean nothing has changed.

        Symlinks are followed, so that a mounted ConfigMap, which swaps a link, is seen to change.
        """
        marks = []
        for path in self.paths():
            try:
                status = path.stat()
            except OSError:
                continue  # removed between listing and looking
            marks.append((str(path), status.st_ino, status.st_size, status.st_mtime_ns))
        return tuple(marks)

    def read(self) -> FolderContent:
        """Return what is in force, not in the midst of a publish. Raises ConfigError if unreadable."""
        with shared_lock(self.path):
            return self.read_unlocked()

    def read_unlocked(self) -> FolderContent:
        """As ``read``, for who holds the lock."""
        if not self.path.is_dir():
            raise ConfigError("there is no such folder", file=str(self.path))
        folder = ConfigFolder(files_root(self.path))
        for _ in range(_NUM_READS):
            before = self.fingerprint()
            try:
                files = tuple(folder._read(path) for path in folder.paths())
            except FileNotFoundError:
                continue  # a link was swapped between listing and opening
            if self.fingerprint() == before:
                return FolderContent(files, before, head_number(self.path))
        raise ConfigError("the files keep changing while they are read", file=str(self.path))

    def paths(self) -> list[Path]:
        """Return the files of all documents, by kind and name."""
        # Names with a dot in front are the inside of a mounted ConfigMap, or an editor's.
        return [
            path
            for kind in KINDS
            for path in sorted((self.path / kind).glob("[!.]*"))
            if path.suffix in _SUFFIXES
        ]

    def _read(self, path: Path) -> SourceFile:
        name = str(path.relative_to(self.path))
        kind: Kind = "tasks" if path.parent.name == "tasks" else "experiments"
        try:
            with path.open("rb") as file:
                content = file.read(_MAX_BYTES + 1)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise ConfigError(f"cannot be read: {error.strerror}", file=name) from error
        if len(content) > _MAX_BYTES:
            raise ConfigError(f"is larger than {_MAX_BYTES} bytes", file=name)
        return SourceFile(kind, name, content)
