"""The documents that a command is given: one folder, or single files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gateway.errors import CommandError, ConfigError
from gateway.stack.target import folder_files
from gateway.store.amendment import kind_of
from gateway.store.backend import SourceFile


@dataclass(frozen=True, slots=True)
class Sources:
    """``is_whole``: a folder, whose documents are all there shall be."""

    files: tuple[SourceFile, ...]
    is_whole: bool


def read_sources(paths: Sequence[Path]) -> Sources:
    """Read a folder, or single YAML or JSON files, which say by their fields what they are.

    Raises ConfigError where one cannot be read, CommandError for a folder that is not alone.
    """
    if len(paths) == 1 and not paths[0].is_file():
        return Sources(folder_files(paths[0]), is_whole=True)
    if folder := next((path for path in paths if path.is_dir()), None):
        raise CommandError(f"{folder} is a folder: name one folder, or single files")
    return Sources(tuple(_file(path) for path in paths), is_whole=False)


def _file(path: Path) -> SourceFile:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=str(path)) from error
    return SourceFile(kind_of(str(path), content), str(path), content)
