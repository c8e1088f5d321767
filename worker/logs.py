"""Log lines as JSON on stdout. No prompt text, no answer and no secret is in them."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Collection
from typing import Any

from worker.redaction import redact, tell_traceback

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, event, and whatever ``extra`` held.

    ``secrets`` are hidden wherever they stand.
    """

    def __init__(self, secrets: Collection[str] = ()) -> None:
        super().__init__()
        self._secrets = tuple(secrets)

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "event": redact(_message(record), self._secrets),
            "time": round(record.created, 3),
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        own = {name: value for name, value in vars(record).items() if name not in _STANDARD}
        line |= redact(own, self._secrets)
        if record.exc_info and record.exc_info[1] is not None:
            line["exception"] = redact(tell_traceback(record.exc_info[1]), self._secrets)
        return json.dumps(line, ensure_ascii=False, default=str)


def _message(record: logging.LogRecord) -> str:
    message = record.getMessage()
    # asyncio writes an error's own words below its first line; the traceback says what may be said of it.
    return message.partition("\n")[0] if record.name == "asyncio" else message


def configure_logging(level: int = logging.INFO, secrets: Collection[str] = ()) -> None:
    """Send all to stdout, libraries from warnings on; ``secrets`` are what the process itself knows."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(JsonFormatter(secrets))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("worker").setLevel(level)
