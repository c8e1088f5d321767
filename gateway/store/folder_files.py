"""The files that a folder is to hold after a change, and putting them there."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from gateway.errors import ConfigError
from gateway.store.backend import KINDS, ConfigFolder, Kind, SourceFile
from gateway.store.documents import Documents
from gateway.store.editing import read_documents, read_named
from gateway.store.file_text import changed_text, file_text
from gateway.store.proposal import Proposal
from gateway.store.publish_lock import write_whole


def files_of(proposal: Proposal, files: Sequence[SourceFile]) -> tuple[SourceFile, ...]:
    """Return the files of ``proposal``: those of ``files`` whose documents stay, byte for byte, and new ones.

    A document keeps the name of its file. Raises ConfigError where the files would read as something else.
    """
    try:
        before, names = read_named(files)
    except ConfigError:
        before, names = Documents({}, {}), {}
    by_name = {file.name: file for file in files}
    result: dict[str, SourceFile] = {}
    for kind in KINDS:
        old, new = _of(before, kind), _of(proposal.documents, kind)
        taken = {names[f"{kind}/{each}"] for each in old if f"{kind}/{each}" in names and each in new}
        for each, document in new.items():
            name = names.get(f"{kind}/{each}") or _free_name(kind, each, taken | result.keys())
            if each not in old:
                content = file_text(kind, name, document)
            elif old[each] == document:
                content = by_name[name].content
            else:
                content = changed_text(by_name[name].content, kind, name, document)
            result[name] = SourceFile(kind, name, content)
    written = tuple(result.values())
    if read_documents(written).sha != proposal.sha:
        raise ConfigError("these documents cannot be written as files without a change of their meaning")
    return written


def put_files(folder: Path, files: Sequence[SourceFile]) -> None:
    """Make ``files`` the documents of ``folder``; those with the same content are left alone."""
    there = {path.relative_to(folder).as_posix(): path for path in ConfigFolder(folder).paths()}
    for kind in KINDS:
        (folder / kind).mkdir(exist_ok=True)
    for file in files:
        path = there.pop(file.name, None)
        if path is None or path.read_bytes() != file.content:
            write_whole(folder / file.name, file.content)
    for path in there.values():
        path.unlink()


def _of(documents: Documents, kind: Kind) -> Mapping[str, Mapping[str, Any]]:
    return documents.tasks if kind == "tasks" else documents.experiments


def _free_name(kind: Kind, name: str, taken: Collection[str]) -> str:
    candidates = (f"{kind}/{name}{suffix}" for suffix in (".yaml", *(f".{n}.yaml" for n in range(2, 100))))
    return next(candidate for candidate in candidates if candidate not in taken)
