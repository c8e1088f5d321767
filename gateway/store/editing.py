"""The editing schema: what a person wrote becomes documents; a typo is an error with file and line."""

from __future__ import annotations

import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import BaseModel, ValidationError

from gateway.errors import ConfigError
from gateway.store.backend import Kind, SourceFile
from gateway.store.document import SCHEMA_VERSION, ExperimentDocument, TaskDocument
from gateway.store.documents import Documents
from gateway.store.lineage import DEFAULT_TASK, effective, effective_fields
from gateway.store.migrate import is_from_the_future, migrated, schema_version
from gateway.store.source import Written, read
from gateway.store.spelling import spelled_experiment, spelled_task

_NAME_FIELDS: Mapping[Kind, str] = {"tasks": "task_type", "experiments": "id"}


def read_documents(files: Sequence[SourceFile]) -> Documents:
    """Return what ``files`` (YAML or JSON) say, in today's schema version and in one spelling.

    The same words in another order, layout or number format have the same sha. Raises ConfigError with file
    and line where a file is no document, has a field too many or a value that cannot be.
    """
    return read_named(files)[0]


def read_named(files: Sequence[SourceFile]) -> tuple[Documents, Mapping[str, str]]:
    """Return the documents, and the file of each by its place: ``tasks/NAME`` or ``experiments/ID``."""
    tasks = _by_name("tasks", [read(file) for file in files if file.kind == "tasks"])
    experiments = _by_name("experiments", [read(file) for file in files if file.kind == "experiments"])
    default = tasks[DEFAULT_TASK].data if DEFAULT_TASK in tasks else {}
    # The default first: of what is wrong in it, the others are wrong too.
    order = sorted(tasks, key=lambda name: (name != DEFAULT_TASK, name))
    documents = Documents(
        {name: edited_task(tasks[name], default) for name in order},
        {name: edited_experiment(each) for name, each in experiments.items()},
    )
    places = {f"tasks/{name}": each.file for name, each in tasks.items()}
    places |= {f"experiments/{name}": each.file for name, each in experiments.items()}
    return documents, places


def edited(documents: Documents, before: Documents | None) -> Documents:
    """Return ``documents`` as the editing schema has them; those that stand in ``before`` stay as they are.

    So nobody is told of a field that another program wrote into a document that is not touched here. Raises
    ConfigError with ``tasks/NAME`` or ``experiments/ID`` for its file.
    """
    default = _known_default(documents)
    tasks: dict[str, Mapping[str, Any]] = {}
    for name, task in documents.tasks.items():
        is_kept = before is not None and before.tasks.get(name) == task
        tasks[name] = task if is_kept else edited_task(_today("tasks", f"tasks/{name}", task), default)
    experiments: dict[str, Mapping[str, Any]] = {}
    for name, each in documents.experiments.items():
        is_kept = before is not None and before.experiments.get(name) == each
        place = f"experiments/{name}"
        experiments[name] = each if is_kept else edited_experiment(_today("experiments", place, each))
    return Documents(tasks, experiments)


def _known_default(documents: Documents) -> Mapping[str, Any]:
    """Return what tasks inherit, without fields that only another program knows."""
    if DEFAULT_TASK not in documents.tasks:
        return {}
    own = migrated("tasks", documents.tasks[DEFAULT_TASK])
    return spelled_task(own, effective(documents, DEFAULT_TASK))


def edited_task(written: Written, default: Mapping[str, Any]) -> dict[str, Any]:
    """Return the task's own fields, checked together with what it inherits from ``default``."""
    for path in nulls_of_no_field(written.data, TaskDocument):
        name = ".".join(path)
        raise ConfigError(
            f"{name}: Extra inputs are not permitted", file=written.file, line=written.line_of(path)
        )
    is_default = written.data.get("task_type") == DEFAULT_TASK
    fields = effective_fields({} if is_default else default, written.data)
    try:
        return spelled_task(written.data, TaskDocument.model_validate(fields))
    except ValidationError as error:
        raise written.problem(error) from error


def edited_experiment(written: Written) -> dict[str, Any]:
    """Return the experiment's fields, checked."""
    try:
        return spelled_experiment(ExperimentDocument.model_validate(written.data))
    except ValidationError as error:
        raise written.problem(error) from error


def _by_name(kind: Kind, found: Sequence[Written]) -> dict[str, Written]:
    field = _NAME_FIELDS[kind]
    documents: dict[str, Written] = {}
    for each in found:
        name = each.data.get(field)
        if not isinstance(name, str):
            _refuse_nameless(kind, each)
        if name in documents:
            what = "task" if kind == "tasks" else "experiment"
            raise ConfigError(f"{field}: there is another {what} {name!r}", file=each.file)
        documents[str(name)] = _today_of(kind, each)
    return documents


def _refuse_nameless(kind: Kind, written: Written) -> typing.NoReturn:
    field = _NAME_FIELDS[kind]
    what = "Field required" if field not in written.data else "Input should be a valid string"
    raise ConfigError(f"{field}: {what}", file=written.file, line=written.line_of((field,)))


def _today(kind: Kind, place: str, document: Mapping[str, Any]) -> Written:
    return _today_of(kind, Written(place, document))


def _today_of(kind: Kind, written: Written) -> Written:
    if is_from_the_future(written.data):
        version = schema_version(written.data)
        raise ConfigError(
            f"schema_version: {version} is newer than this program, which writes {SCHEMA_VERSION}",
            file=written.file,
            line=written.line_of(("schema_version",)),
        )
    return replace(written, data=migrated(kind, written.data))


def nulls_of_no_field(
    fields: Mapping[str, Any], model: type[BaseModel], path: tuple[str, ...] = ()
) -> Iterator[tuple[str, ...]]:
    """Yield the paths of nulls without a field in the schema: nulls are gone when it is validated."""
    for name, value in fields.items():
        info = model.model_fields.get(name)
        if value is None and info is None:
            yield (*path, str(name))
        if isinstance(value, Mapping) and info is not None:
            for kind in (info.annotation, *typing.get_args(info.annotation)):
                if isinstance(kind, type) and issubclass(kind, BaseModel):
                    yield from nulls_of_no_field(value, kind, (*path, name))
