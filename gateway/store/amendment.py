"""What somebody wants the configuration to become: all of it, or some documents of the one in force."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gateway.errors import ConfigError
from gateway.store.backend import Kind, SourceFile
from gateway.store.canary import put_on_share, without_decided_shares
from gateway.store.centre import Version
from gateway.store.documents import Documents
from gateway.store.editing import read_documents
from gateway.store.lineage import DEFAULT_TASK, effective
from gateway.store.source import read
from gateway.store.versions import canonical_json

EMPTY = Version(0, "", Documents({}, {}))
"""What a namespace that nothing was published to has in force."""


@dataclass(frozen=True, slots=True)
class Amendment:
    """Documents as files, and how they are to be taken."""

    files: tuple[SourceFile, ...]
    is_whole: bool = False
    """They are all there shall be; otherwise they replace documents of the head, or join them."""
    removed: tuple[str, ...] = ()
    """``tasks.NAME`` or ``experiments.ID``, each taken out of the head."""
    share: float | None = None
    """What the changes of tasks get of the traffic, for a start; None is all of it."""


def amended(head: Version, amendment: Amendment) -> Documents:
    """Return what is to be published in the place of ``head``.

    Raises ConfigError with file and line where a file is no document, or where there is nothing of a name
    that is to be removed; PublishRefused where a change cannot be put on a share.
    """
    before = head.documents
    if amendment.is_whole:
        wanted = _without(read_documents(amendment.files), amendment.removed)
    else:
        parts = read_with_default(amendment.files, before)
        kept = _without(before, amendment.removed)
        wanted = Documents({**kept.tasks, **parts.tasks}, {**kept.experiments, **parts.experiments})
    if amendment.share is not None:
        return put_on_share(before, wanted, amendment.share, head.number + 1)
    return without_decided_shares(before, wanted)


def read_with_default(files: Sequence[SourceFile], before: Documents) -> Documents:
    """Return the documents of ``files``, checked with what they inherit from ``before``'s default task."""
    has_default = any(file.kind == "tasks" and _name_of(file) == DEFAULT_TASK for file in files)
    if has_default or DEFAULT_TASK not in before.tasks:
        return read_documents(files)
    # As it is served: fields that another program wrote into it are no typos of this edit.
    default = effective(before, DEFAULT_TASK).model_dump(mode="json", exclude_unset=True)
    base = SourceFile("tasks", "the task 'default' in force", canonical_json(default))
    found = read_documents((*files, base))
    tasks = {name: task for name, task in found.tasks.items() if name != DEFAULT_TASK}
    return Documents(tasks, found.experiments)


def kind_of(name: str, content: bytes) -> Kind:
    """Say what a document is by its fields: a task has ``task_type``, an experiment ``arms``.

    Raises ConfigError where it is neither, or nothing that can be read.
    """
    fields = read(SourceFile("tasks", name, content)).data
    if "task_type" in fields:
        return "tasks"
    if "arms" in fields:
        return "experiments"
    raise ConfigError("is no task (task_type) and no experiment (id, arms)", file=name, line=1)


def _name_of(file: SourceFile) -> object:
    return read(file).data.get("task_type")


def _without(documents: Documents, removed: Sequence[str]) -> Documents:
    tasks, experiments = dict(documents.tasks), dict(documents.experiments)
    for place in removed:
        kind, _, name = place.partition(".")
        held = {"tasks": tasks, "experiments": experiments}.get(kind, {})
        if name not in held:
            raise ConfigError(f"there is no {place!r} to remove; it is tasks.NAME or experiments.ID")
        del held[name]
    return Documents(tasks, experiments)
