"""JSON lines on stdout: the request id bound, secrets redacted, no prompt text.

A log call names an event and gives its fields: ``log(logger, logging.INFO, "turn", lane="control")``.
"""

from __future__ import annotations

import logging
import re
import sys
import traceback
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

import orjson

request_id: ContextVar[str] = ContextVar("request_id", default="")

REDACTED = "[redacted]"
SECRET_FIELDS = frozenset({"authorization", "api_key", "admin_key", "password", "token", "cookie", "secret"})
PROMPT_FIELDS = frozenset({"messages", "prompt", "content", "documents", "text", "question", "body"})
HIDDEN_FIELDS = SECRET_FIELDS | PROMPT_FIELDS
SHORTEST_SECRET = 8
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+[^\s\"',;]+")
_KEY = re.compile(r"\b(sk|ng|hf|pk)[-_][A-Za-z0-9_-]{12,}")
_URL_PASSWORD = re.compile(r"(?<=://)[^/\s:@]*:[^/\s@]*(?=@)")
_FIELDS = "ng_fields"


def redact(value: Any) -> Any:
    """Return ``value`` without secrets and prompt text, at any depth."""
    if isinstance(value, str):
        if len(value) < SHORTEST_SECRET:
            return value
        value = _BEARER.sub(rf"\1 {REDACTED}", value)
        value = _KEY.sub(REDACTED, value)
        return _URL_PASSWORD.sub(REDACTED, value)
    if isinstance(value, dict):
        return {
            str(key): REDACTED if str(key).lower() in HIDDEN_FIELDS else redact(item)
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [redact(item) for item in value]
    return value


def log(logger: logging.Logger, level: int, event: str, *, exc_info: bool = False, **fields: Any) -> None:
    """Write one event with its fields."""
    if logger.isEnabledFor(level):
        logger.log(level, event, extra={_FIELDS: fields}, exc_info=exc_info)


class JsonFormatter(logging.Formatter):
    """One line of JSON a record, whoever wrote it."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "event": redact(record.getMessage()),
            "level": record.levelname.lower(),
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "logger": record.name,
        }
        if current := request_id.get():
            line["request_id"] = current
        line |= redact(getattr(record, _FIELDS, {}))
        if record.exc_info and record.exc_info[0] is not None:
            line["traceback"] = redact("".join(traceback.format_exception(*record.exc_info)))
        return orjson.dumps(line, default=str).decode()


def configure_logging(level: int = logging.INFO) -> None:
    """Send every logger of this process to stdout as JSON. Called once, by the process's entry point."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "httpx"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
        logger.setLevel(logging.WARNING)
