"""The prompts that a task is calibrated with: a line of text each, or a request body as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gateway.errors import CalibrationError

OWN_FIELDS = frozenset({"task", "gravity", "stream", "stream_options", "n", "temperature", "model"})
"""What the measurement sets itself."""
_ENDPOINTS = {"messages": "/v1/chat/completions", "prompt": "/v1/completions"}

Body = Mapping[str, Any]


def read_prompts(file: Path) -> tuple[Body, ...]:
    """Return a request body for every line that is not empty. Raises CalibrationError with the line."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise CalibrationError(f"{file} cannot be read: {error}") from error
    bodies = [_body(file, number, line.strip()) for number, line in enumerate(lines, 1) if line.strip()]
    if not bodies:
        raise CalibrationError(f"{file} holds no prompt: each is a line of text, or of JSON with messages")
    return tuple(bodies)


def endpoint_of(body: Body) -> str:
    """Return the path that takes such a body."""
    return next(path for name, path in _ENDPOINTS.items() if name in body)


def _body(file: Path, number: int, line: str) -> Body:
    if not line.startswith("{"):
        return {"messages": [{"role": "user", "content": line}]}
    try:
        body = json.loads(line)
    except json.JSONDecodeError as error:
        raise CalibrationError(f"{file}:{number}: no JSON: {error}") from error
    if not _ENDPOINTS.keys() & body.keys():
        raise CalibrationError(f"{file}:{number}: neither messages nor prompt")
    return {name: value for name, value in body.items() if name not in OWN_FIELDS}
