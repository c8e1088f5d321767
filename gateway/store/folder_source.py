"""A folder as the source of the configuration in force."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path

from watchfiles import Change as FileChange

from gateway.store.backend import ConfigFolder, Fingerprint
from gateway.store.bells import folder_rings
from gateway.store.editing import read_named
from gateway.store.loading import Loaded
from gateway.store.publish_lock import VERSIONS_FOLDER


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
        """Ring on a change in the folder, whatever publishes it, and every second."""
        async with contextlib.aclosing(folder_rings(self._folder.path, _is_no_version)) as rings:
            async for _ in rings:
                yield


def _is_no_version(change: FileChange, path: str) -> bool:
    return VERSIONS_FOLDER not in Path(path).parts
