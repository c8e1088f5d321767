"""JSON lines on stdout: the request id bound, secrets redacted, no prompt text.

A log call names an event and gives its fields: ``log(logger, logging.INFO, "turn", lane="control")``.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Collection
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

import orjson

from worker.redaction import redact as redact
from worker.redaction import tell_traceback

request_id: ContextVar[str] = ContextVar("request_id", default="")

_FIELDS = "ng_fields"


def log(logger: logging.Logger, level: int, event: str, *, exc_info: bool = False, **fields: Any) -> None:
    """Write one event with its fields."""
    if logger.isEnabledFor(level):
        logger.log(level, event, extra={_FIELDS: fields}, exc_info=exc_info)


class JsonFormatter(logging.Formatter):
    """One line of JSON a record, whoever wrote it. ``secrets`` are hidden wherever they stand."""

    def __init__(self, secrets: Collection[str] = ()) -> None:
        super().__init__()
        self._secrets = tuple(secrets)

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "event": redact(_message(record), self._secrets),
            "level": record.levelname.lower(),
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "logger": record.name,
        }
        if current := request_id.get():
            line["request_id"] = redact(current, self._secrets)
        line |= redact(getattr(record, _FIELDS, {}), self._secrets)
        if record.exc_info and record.exc_info[1] is not None:
            line["traceback"] = redact(tell_traceback(record.exc_info[1]), self._secrets)
        try:
            return orjson.dumps(line, default=str).decode()
        except TypeError:  # lone surrogates and huge integers, which a line must not be lost for
            return json.dumps(line, default=str)


def _message(record: logging.LogRecord) -> str:
    message = record.getMessage()
    # asyncio writes an error's own words below its first line; the traceback says what may be said of it.
    return message.partition("\n")[0] if record.name == "asyncio" else message


def configure_logging(level: int = logging.INFO, secrets: Collection[str] = ()) -> None:
    """Send every logger of this process to stdout as JSON. Called by the process's entry point.

    ``secrets`` are what the process itself knows: its keys, the password of its Redis.
    """
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(JsonFormatter(secrets))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "httpx"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
        logger.setLevel(logging.WARNING)
