"""The keys that Redis had last, on disk, hashes only: a gateway that starts without Redis is not open."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from gateway.keys.file import KeyList
from gateway.keys.key import Key
from gateway.store.publish_lock import write_whole
from gateway.telemetry.logs import log

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class KeyCopy:
    """One file of one namespace. That it cannot be written or read is logged and stops nothing."""

    path: Path

    def write(self, keys: Mapping[str, Key]) -> None:
        content = KeyList(keys=tuple(keys.values())).model_dump(mode="json", exclude_defaults=True)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.touch(0o600)
            write_whole(self.path, json.dumps(content).encode())
        except OSError as error:
            log(logger, logging.WARNING, "keys_copy_not_written", path=str(self.path), reason=str(error))

    def read(self) -> Mapping[str, Key]:
        """Return the copy; empty where there is none, or it is damaged."""
        try:
            listed = KeyList.model_validate_json(self.path.read_bytes())
        except FileNotFoundError:
            return {}
        except (OSError, ValidationError) as error:
            reason = type(error).__name__
            log(logger, logging.WARNING, "keys_copy_unreadable", path=str(self.path), reason=reason)
            return {}
        return {key.id: key for key in listed.keys}
