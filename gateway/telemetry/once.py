"""Says a thing once: for what clients choose, and so for a bounded number of things."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from gateway.telemetry.logs import log

MAX_NAMES = 200
MAX_NAME_CHARS = 64


class FieldNotes:
    """Logs each name of a field that the gateway does not know, the first time that it is sent."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._seen: set[str] = set()

    def note(self, names: Iterable[str]) -> None:
        for name in names:
            short = name[:MAX_NAME_CHARS]
            if short not in self._seen and len(self._seen) < MAX_NAMES:
                self._seen.add(short)
                log(self._logger, logging.INFO, "unchecked_field", field=short)
