"""JSON lines on stdout: the request id bound, secrets redacted, no prompt text.

A log call names an event and gives its fields: ``log(logger, logging.INFO, "turn", lane="control")``.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from collections.abc import Collection, Mapping
from contextlib import nullcontext
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, NamedTuple, TextIO

import orjson

from worker.redaction import redact as redact
from worker.redaction import tell_traceback

request_id: ContextVar[str] = ContextVar("request_id", default="")

_FIELDS = "ng_fields"


def log(logger: logging.Logger, level: int, event: str, *, exc_info: bool = False, **fields: Any) -> None:
    """Write one event with its fields."""
    if not logger.isEnabledFor(level):
        return
    lines = None if exc_info else _only_lines(logger)
    if lines is None:
        logger.log(level, event, extra={_FIELDS: fields}, exc_info=exc_info)
    else:
        lines.tell(level, event, logger.name, fields)


class _Said(NamedTuple):
    """What a line opens with. ``at_s`` is Unix time, seconds."""

    event: str
    level: str
    at_s: float
    logger: str


class JsonFormatter(logging.Formatter):
    """One line of JSON a record, whoever wrote it. ``secrets`` are hidden wherever they stand."""

    def __init__(self, secrets: Collection[str] = ()) -> None:
        super().__init__()
        self._secrets = tuple(secrets)

    def format(self, record: logging.LogRecord) -> str:
        said = _Said(_message(record), record.levelname, record.created, record.name)
        error = record.exc_info[1] if record.exc_info else None
        return self.line(said, getattr(record, _FIELDS, {}), error)

    def line(self, said: _Said, fields: Mapping[str, Any], error: BaseException | None = None) -> str:
        """Return the line of what was said, without its end."""
        line: dict[str, Any] = {
            "event": redact(said.event, self._secrets),
            "level": said.level.lower(),
            "at": datetime.fromtimestamp(said.at_s, UTC).isoformat(timespec="milliseconds"),
            "logger": said.logger,
        }
        if current := request_id.get():
            line["request_id"] = redact(current, self._secrets)
        line |= redact(fields, self._secrets)
        if error is not None:
            line["traceback"] = redact(tell_traceback(error), self._secrets)
        try:
            return orjson.dumps(line, default=str).decode()
        except TypeError:  # lone surrogates and huge integers, which a line must not be lost for
            return json.dumps(line, default=str)


class Lines(logging.StreamHandler[TextIO]):
    """Writes lines to ``stream``: those of one turn of the event loop together, but a warning at once.

    Nothing waits longer than the loop's turn, the process's end, or the next line of another thread.
    """

    def __init__(self, stream: TextIO, formatter: JsonFormatter) -> None:
        super().__init__(stream)
        self.setFormatter(formatter)
        self._formatter = formatter
        self._waiting: list[str] = []

    def tell(self, level: int, event: str, logger: str, fields: Mapping[str, Any]) -> None:
        """Write an event as a record of it would be written; making one costs as much as the line."""
        said = _Said(event, logging.getLevelName(level), time.time(), logger)
        try:
            self._write(self._formatter.line(said, fields), level)
        except Exception:  # noqa: BLE001 logging's own rule: a line never ends what it tells of
            self.handleError(logging.makeLogRecord({"msg": event, "levelno": level, "name": logger}))

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._write(self.format(record), record.levelno)
        except Exception:  # noqa: BLE001 as above
            self.handleError(record)

    def flush(self) -> None:
        with self.lock or nullcontext():
            waiting, self._waiting = self._waiting, []
            if waiting:
                self.stream.write("".join(waiting))
            super().flush()

    def _write(self, line: str, level: int) -> None:
        loop = None if level >= logging.WARNING else asyncio._get_running_loop()
        with self.lock or nullcontext():
            self._waiting.append(line + self.terminator)
            if loop is None:
                self.flush()
            elif len(self._waiting) == 1:
                loop.call_soon(self._flush_waiting)

    def _flush_waiting(self) -> None:
        try:
            self.flush()
        except (OSError, ValueError):  # nobody reads, or it is closed
            self.handleError(logging.makeLogRecord({"msg": "lines that waited"}))


def _only_lines(logger: logging.Logger) -> Lines | None:
    """Return our own handler where it alone would get a record, and nothing filters; else None."""
    found: Lines | None = None
    here: logging.Logger | None = logger
    while here is not None:
        for handler in here.handlers:
            if found is not None or type(handler) is not Lines or handler.filters:
                return None
            found = handler
        here = here.parent if here.propagate else None
    return None if logger.filters else found


def _message(record: logging.LogRecord) -> str:
    message = record.getMessage()
    # asyncio writes an error's own words below its first line; the traceback says what may be said of it.
    return message.partition("\n")[0] if record.name == "asyncio" else message


def configure_logging(level: int = logging.INFO, secrets: Collection[str] = ()) -> None:
    """Send every logger of this process to stdout as JSON. Called by the process's entry point.

    ``secrets`` are what the process itself knows: its keys, the password of its Redis.
    """
    root = logging.getLogger()
    root.handlers[:] = [Lines(sys.stdout, JsonFormatter(secrets))]
    root.setLevel(level)
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "httpx"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
        logger.setLevel(logging.WARNING)
