"""What a worker's refusal means here: its status and body as one of our errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from gateway.errors import (
    InvalidRequest,
    NoWorkers,
    QueueFull,
    RequestError,
    RequestTooLarge,
    UpstreamDenied,
    UpstreamError,
    UpstreamRejected,
    UpstreamTimeout,
)

DEFAULT_RETRY_AFTER_S = 1.0
MAX_MESSAGE_CHARS = 2_000
_OVERFLOW = "maximum context length"
"""Servers that give no code say it in these words."""


def refusal(status: int, headers: Mapping[str, str], body: bytes) -> RequestError:
    """Translate an answer that is not 200.

    The client's own mistakes are passed on in the worker's words; 429 and 503 keep their meaning; all else,
    a key of ours that the worker does not take included, is the worker's failure.
    """
    return _translate(status, _error_object(body), _retry_after_s(headers))


def refusal_inside_stream(error: object) -> RequestError:
    """Translate ``{"error": …}`` sent as an event of a stream that began with 200 (any-llm#847)."""
    fields = error if isinstance(error, dict) else {"message": error}
    status = fields.get("status", fields.get("code"))
    if not isinstance(status, int) or not 400 <= status <= 599:
        status = 400 if fields.get("type") == "invalid_request_error" else 500
    return _translate(status, fields, None)


def _translate(status: int, error: Mapping[str, Any], retry_after_s: float | None) -> RequestError:
    match status:
        case 413:
            return RequestTooLarge()
        case 429:
            return QueueFull(retry_after_s=retry_after_s or DEFAULT_RETRY_AFTER_S)
        case 503:
            return NoWorkers(retry_after_s=retry_after_s or DEFAULT_RETRY_AFTER_S)
        case 408 | 504:
            return UpstreamTimeout()
        case 400 | 404 | 409 | 422:
            return _rejected(404 if status == 404 else 400, error)
    return UpstreamDenied() if 400 <= status < 500 else UpstreamError()


def _rejected(status: int, error: Mapping[str, Any]) -> UpstreamRejected:
    message = _text(error, "message") or InvalidRequest.default_message
    code = _text(error, "code") or ("model_not_found" if status == 404 else InvalidRequest.code)
    if _OVERFLOW in message.lower():
        code = "context_length_exceeded"
    return UpstreamRejected(
        message[:MAX_MESSAGE_CHARS], status=status, code=code, param=_text(error, "param") or None
    )


def _error_object(body: bytes) -> Mapping[str, Any]:
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    if not isinstance(parsed, dict):
        return {}
    error = parsed.get("error", parsed)
    return error if isinstance(error, dict) else {"message": error}


def _text(error: Mapping[str, Any], name: str) -> str:
    value = error.get(name)
    return value if isinstance(value, str) else ""


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    try:
        seconds = float(headers.get("retry-after", ""))
    except ValueError:  # absent, or a date
        return None
    return seconds if 0 < seconds <= 3600 else None
