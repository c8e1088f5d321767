"""A document as a person would write it into a file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

import yaml

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


class _Dumper(yaml.SafeDumper):
    """Sections are blocks; lists of words or numbers stand in one line."""

    def represent_sequence(
        self, tag: str, sequence: Any, flow_style: bool | None = None
    ) -> yaml.SequenceNode:
        is_plain = not any(isinstance(item, (Mapping, list)) for item in sequence)
        return super().represent_sequence(tag, sequence, flow_style=is_plain)

    def ignore_aliases(self, data: Any) -> bool:
        return True
