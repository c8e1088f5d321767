"""The configuration that served last, on disk, for a start without Redis."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from pathlib import Path

from gateway.errors import ConfigError
from gateway.store.documents import documents_from_bytes
from gateway.store.exported import check_stored
from gateway.store.loading import Loaded
from gateway.store.publish_lock import write_whole
from gateway.telemetry.logs import log

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LastGood:
    """One file of one namespace. That it cannot be written or read is logged and stops nothing."""

    path: Path

    def write(self, loaded: Loaded) -> None:
        text = loaded.documents.as_bytes().decode()
        content = {"number": loaded.number, "sha": loaded.sha, "documents": text}
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self.path, json.dumps(content).encode())
        except OSError as error:
            log(logger, logging.WARNING, "last_good_not_written", path=str(self.path), reason=str(error))

    def read(self) -> Loaded | None:
        """Return the copy; None where there is none, or it is damaged."""
        try:
            data = json.loads(self.path.read_bytes())
            content = check_stored(str(data["sha"]), str(data["documents"]).encode())
            return Loaded(int(data["number"]), str(data["sha"]), documents_from_bytes(content))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, ConfigError) as error:
            log(logger, logging.WARNING, "last_good_unreadable", path=str(self.path), reason=str(error))
            return None
