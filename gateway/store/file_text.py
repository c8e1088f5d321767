"""A document as a person would write it into a file, or would change it in the file that is there."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

import yaml
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import YAMLError

from gateway.store.backend import Kind
from gateway.store.document import ExperimentDocument, TaskDocument

_WIDTH = 110


def file_text(kind: Kind, name: str, document: Mapping[str, Any]) -> bytes:
    """Return the content of the file ``name``, JSON or YAML by its end; fields in the schema's order."""
    fields = TaskDocument.model_fields if kind == "tasks" else ExperimentDocument.model_fields
    order = {field: index for index, field in enumerate(fields)}
    ordered = dict(sorted(document.items(), key=lambda item: order.get(item[0], len(order))))
    if PurePath(name).suffix == ".json":
        return (json.dumps(ordered, ensure_ascii=False, indent=2) + "\n").encode()
    text = yaml.dump(ordered, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_WIDTH)
    return text.encode()


def changed_text(content: bytes, kind: Kind, name: str, document: Mapping[str, Any]) -> bytes:
    """Return ``content`` with what differs in ``document`` changed, and its comments as they were.

    A file that cannot be changed so, JSON among them, is written anew.
    """
    anew = file_text(kind, name, document)
    if PurePath(name).suffix == ".json":
        return anew
    editor = YAML()
    editor.preserve_quotes = True
    editor.width = _WIDTH
    editor.indent(mapping=2, sequence=4, offset=2)
    changed = io.BytesIO()
    try:
        root = editor.load(content)
        if not isinstance(root, CommentedMap):
            return anew
        _lay(document, root)
        editor.dump(root, changed)
        # YAML 1.2 wrote it and 1.1 reads it: what the two take for different things is written anew.
        is_same = yaml.safe_load(changed.getvalue()) == document
    except (YAMLError, yaml.YAMLError, UnicodeDecodeError):
        return anew
    return changed.getvalue() if is_same else anew


def _lay(wanted: Mapping[str, Any], there: CommentedMap) -> None:
    """Make ``there`` equal to ``wanted``, touching only what differs."""
    for field in [field for field in there if field not in wanted]:
        del there[field]
    for field, value in wanted.items():
        current = there.get(field)
        if isinstance(value, Mapping) and isinstance(current, CommentedMap):
            _lay(value, current)
        elif _are_alike(value, current):
            for one, other in zip(value, current, strict=True):
                _lay(one, other)
        elif field not in there or current != value:
            there[field] = _node(value)


def _are_alike(value: Any, current: Any) -> bool:
    """Whether both are lists of as many sections, such as an experiment's arms."""
    if not (isinstance(value, list) and isinstance(current, CommentedSeq) and len(value) == len(current)):
        return False
    return all(isinstance(each, Mapping) for each in value) and all(
        isinstance(each, CommentedMap) for each in current
    )


def _node(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    line = CommentedSeq(value)
    if not any(isinstance(item, (Mapping, list)) for item in value):
        line.fa.set_flow_style()
    return line


class _Dumper(yaml.SafeDumper):
    """Sections are blocks; lists of words or numbers stand in one line."""

    def represent_sequence(
        self, tag: str, sequence: Any, flow_style: bool | None = None
    ) -> yaml.SequenceNode:
        is_plain = not any(isinstance(item, (Mapping, list)) for item in sequence)
        return super().represent_sequence(tag, sequence, flow_style=is_plain)

    def represent_scalar(self, tag: str, value: str, style: str | None = None) -> yaml.ScalarNode:
        is_of_lines = isinstance(value, str) and "\n" in value
        return super().represent_scalar(tag, value, '"' if is_of_lines else style)

    def ignore_aliases(self, data: Any) -> bool:
        return True
