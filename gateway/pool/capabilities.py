"""What a worker can do, as its own list of models tells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

import orjson

from gateway.errors import UpstreamError

Level: TypeAlias = Literal["native", "opaque"]

MAX_ENVIRONMENT_BYTES = 8 * 1024
"""It goes into every turn's record."""
MAX_WORD = 100


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a worker says of itself. ``models`` maps ids to context lengths, None where none is told."""

    level: Level
    models: Mapping[str, int | None]
    vocabulary_sizes: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """By model, where the server tells (llama.cpp does)."""
    environment: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """What it computes with: a native worker's own words, of others what their headers and models show."""


def native_capabilities(answer: Mapping[str, Any]) -> Capabilities:
    """Return what one of our workers tells in its ``/v1/models``. Raises UpstreamError."""
    told = {"level": "native", **_told_environment(answer)}
    return Capabilities("native", _models(answer), environment=told)


def opaque_capabilities(answer: Mapping[str, Any], server: str) -> Capabilities:
    """Return what can be seen of another server, ``server`` as its header names it. Raises UpstreamError."""
    models = _models(answer)
    seen = {"level": "opaque", **_seen_environment(answer, server)}
    return Capabilities("opaque", models, _vocabulary_sizes(answer), seen)


def _models(answer: Mapping[str, Any]) -> dict[str, int | None]:
    entries = answer.get("data")
    if not isinstance(entries, list):
        raise UpstreamError("The worker's /v1/models is no list of models.")
    return {
        entry["id"]: _context_length(entry)
        for entry in entries
        if isinstance(entry, dict) and isinstance(entry.get("id"), str)
    }


def _vocabulary_sizes(answer: Mapping[str, Any]) -> dict[str, int]:
    sizes = {}
    for entry in answer["data"]:
        meta = entry.get("meta") if isinstance(entry, dict) else None
        size = meta.get("n_vocab") if isinstance(meta, dict) else None
        if type(size) is int and size > 1 and isinstance(entry.get("id"), str):
            sizes[entry["id"]] = size
    return sizes


def _told_environment(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a native worker's own description; empty where it gives none, or far too much."""
    for entry in answer["data"]:
        gravity = entry.get("gravity") if isinstance(entry, dict) else None
        told = gravity.get("environment") if isinstance(gravity, dict) else None
        if isinstance(told, dict) and len(orjson.dumps(told)) <= MAX_ENVIRONMENT_BYTES:
            return told
    return {}


def _seen_environment(answer: Mapping[str, Any], server: str) -> dict[str, Any]:
    """Return what a server shows that says nothing of itself: its name, and who owns its models."""
    owners = (entry.get("owned_by") for entry in answer["data"] if isinstance(entry, dict))
    owner = next((each for each in owners if isinstance(each, str)), "")
    seen = {"server": server[:MAX_WORD], "owned_by": owner[:MAX_WORD]}
    return {name: value for name, value in seen.items() if value}


def _context_length(entry: Mapping[str, Any]) -> int | None:
    length = entry.get("max_model_len")
    return length if isinstance(length, int) else None
