"""``gravity config show``: documents, field by field, with where each field comes from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import yaml

from gateway.configure.speech import FINE, Tell, answered, columns, tell_people, value_text, version_text
from gateway.errors import CommandError
from gateway.stack.target import Target
from gateway.store.backend import Kind
from gateway.store.centre import Version
from gateway.store.documents import Documents
from gateway.store.origin import effective_document, sourced_fields, written_document

ORIGINS: Mapping[str, str] = {"written": "written here", "default": "from default", "schema": "schema"}


@dataclass(frozen=True, slots=True)
class ShowOptions:
    name: str | None = None
    """A task or an experiment; None is every document."""
    at: str = "head"
    is_written: bool = False
    """As it was written, without what it inherits and the schema adds."""
    tell: Tell = tell_people


def run_show(target: Target, options: ShowOptions) -> int:
    """Tell the documents. Raises CommandError where there is none of that name."""
    return answered(lambda: _show(target.centre().find(options.at), options))


def _show(version: Version, options: ShowOptions) -> int:
    places = list(_places(version.documents, options.name))
    if not places:
        names = ", ".join(name for _, name in _places(version.documents, None))
        raise CommandError(f"there is no document {options.name!r}; there are {names}")
    lines = chain.from_iterable(_lines(version, place, options) for place in places)
    options.tell(_data(version, places, options), lines)
    return FINE


def _lines(version: Version, place: tuple[Kind, str], options: ShowOptions) -> Iterator[str]:
    kind, name = place
    yield f"{kind}.{name}, {version_text(version.number, version.sha)}"
    if options.is_written:
        document = dict(written_document(version.documents, kind, name))
        yield yaml.safe_dump(document, sort_keys=False, allow_unicode=True).rstrip()
        return
    fields = sourced_fields(version.documents, kind, name)
    yield from columns([(f"  {each.path}", ORIGINS[each.origin], value_text(each.value)) for each in fields])


def _places(documents: Documents, wanted: str | None) -> Iterator[tuple[Kind, str]]:
    for name in sorted(documents.tasks):
        if wanted in (None, name, f"tasks.{name}"):
            yield "tasks", name
    for name in sorted(documents.experiments):
        if wanted in (None, name, f"experiments.{name}"):
            yield "experiments", name


def _data(version: Version, places: list[tuple[Kind, str]], options: ShowOptions) -> dict[str, Any]:
    found: dict[str, Any] = {"number": version.number, "sha": version.sha, "documents": {}}
    for kind, name in places:
        shown: dict[str, Any] = {"written": written_document(version.documents, kind, name)}
        if not options.is_written:
            shown["effective"] = effective_document(version.documents, kind, name)
            fields = sourced_fields(version.documents, kind, name)
            shown["origins"] = {field.path: field.origin for field in fields}
        found["documents"][f"{kind}.{name}"] = shown
    return found
