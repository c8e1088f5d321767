"""Retrieved documents in one shape, from the two that clients send.

vLLM        {"text": "…", "title": "…", …}           a mapping with ``text``; everything else is metadata
Cohere v2   "…"  or  {"id": "…", "data": {…} | "…"}  a string, or a mapping with ``data``
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from gateway.context.report import Document
from gateway.errors import InvalidRequest

OWN_FIELDS = frozenset({"id", "text", "title", "embedding"})


def normalised(sent: object) -> tuple[Document, ...]:
    """Return the documents in the order they were sent. Raises InvalidRequest, naming the field."""
    if sent is None:
        return ()
    if not isinstance(sent, list):
        raise InvalidRequest("documents must be a list.", param="documents")
    documents = [_document(item, f"documents[{index}]") for index, item in enumerate(sent)]
    return _with_ids(documents)


def _document(item: object, param: str) -> Document:
    if isinstance(item, str):
        return Document(id="", text=item)
    if not isinstance(item, dict):
        raise InvalidRequest(f"{param} must be a string or an object.", param=param)
    if "data" in item:
        return _from_cohere(item, param)
    if not isinstance(item.get("text"), str):
        raise InvalidRequest(f"{param}.text must be a string.", param=f"{param}.text")
    return _from_fields(item.get("id"), item["text"], item, param)


def _from_cohere(item: Mapping[str, Any], param: str) -> Document:
    data = item["data"]
    if isinstance(data, str):
        return _from_fields(item.get("id"), data, {}, param)
    if not isinstance(data, dict):
        raise InvalidRequest(f"{param}.data must be a string or an object.", param=f"{param}.data")
    text = data.get("text")
    if not isinstance(text, str):
        # Cohere shows a model all fields of ``data``; where none is called text, all of them are the text.
        text = "\n".join(f"{name}: {value}" for name, value in data.items() if name not in OWN_FIELDS)
    return _from_fields(item.get("id", data.get("id")), text, data, param)


def _from_fields(identity: object, text: str, fields: Mapping[str, Any], param: str) -> Document:
    if isinstance(identity, bool) or not isinstance(identity, str | int | None):
        raise InvalidRequest(f"{param}.id must be a string.", param=f"{param}.id")
    title = fields.get("title")
    if not isinstance(title, str | None):
        raise InvalidRequest(f"{param}.title must be a string.", param=f"{param}.title")
    return Document(
        id="" if identity is None else str(identity),
        text=text,
        title=title or "",
        embedding=_embedding(fields.get("embedding"), param),
        metadata=MappingProxyType({name: v for name, v in fields.items() if name not in OWN_FIELDS}),
    )


def _embedding(sent: object, param: str) -> tuple[float, ...] | None:
    if sent is None:
        return None
    is_vector = isinstance(sent, list) and bool(sent) and all(type(x) in (int, float) for x in sent)
    if not isinstance(sent, list) or not is_vector or not all(map(math.isfinite, sent)):
        raise InvalidRequest(f"{param}.embedding must be a list of numbers.", param=f"{param}.embedding")
    return tuple(map(float, sent))


def _with_ids(documents: Sequence[Document]) -> tuple[Document, ...]:
    """Invent an id where there is none: ``doc-0`` by position, never one that the client gave to another."""
    taken = {document.id for document in documents}
    named = []
    for index, document in enumerate(documents):
        name = document.id or f"doc-{index}"
        while not document.id and name in taken:
            name += f"-{index}"
        taken.add(name)
        named.append(replace(document, id=name))
    return tuple(named)
