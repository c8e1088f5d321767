"""A folder as the source of the configuration in force."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from pathlib import Path

from watchfiles import Change as FileChange
from watchfiles import awatch

from gateway.store.backend import ConfigFolder, Fingerprint
from gateway.store.editing import read_named
from gateway.store.loading import Loaded
from gateway.store.publish_lock import VERSIONS_FOLDER
from gateway.telemetry.logs import log

POLL_S = 1.0
"""Changes are noticed at once where the system tells of them, and within this time where it does not."""
_DEBOUNCE_MS = 200

logger = logging.getLogger(__name__)


class FolderSource:
    """The files as they are, however they came there. They are their own last good copy."""

    def __init__(self, folder: ConfigFolder) -> None:
        self._folder = folder
        self._seen: Fingerprint | None = None

    def has_changed(self) -> bool:
        return self._folder.fingerprint() != self._seen

    def load(self) -> Loaded:
        # From before reading: what is written meanwhile is seen to differ at the next ring.
        self._seen = self._folder.fingerprint()
        content = self._folder.read()
        self._seen = content.fingerprint
        documents, places = read_named(content.files)
        return Loaded(content.number, documents.sha, documents, places)

    def last_good(self) -> Loaded | None:
        return None

    def keep(self, loaded: Loaded) -> None:
        """Nothing is kept: a gateway does not start on files that are broken."""

    async def rings(self) -> AsyncGenerator[None, None]:
        """Ring on a change in the folder, and every second: a bell, with the poll as the safety net.

        The poll finds what no event tells: a folder that is itself a swapped link, or a network file system.
        """
        path = self._folder.path
        try:
            bell = awatch(
                path,
                watch_filter=_is_no_version,
                debounce=_DEBOUNCE_MS,
                rust_timeout=int(POLL_S * 1e3),
                yield_on_timeout=True,
            )
            async for _ in bell:
                yield
        except OSError as error:
            log(logger, logging.WARNING, "watch_unavailable", folder=str(path), reason=str(error))
        while True:
            await asyncio.sleep(POLL_S)
            yield


def _is_no_version(change: FileChange, path: str) -> bool:
    return VERSIONS_FOLDER not in Path(path).parts
