"""The configuration in force: loaded once, reloaded when files change, the last good one kept."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

from watchfiles import awatch

from gateway.errors import ConfigError
from gateway.store.backend import ConfigFolder
from gateway.store.editing import read_documents
from gateway.store.snapshot import Snapshot, build_snapshot
from gateway.telemetry.logs import log

POLL_S = 1.0
"""Changes are noticed at once where the system tells of them, and within this time where it does not."""
_DEBOUNCE_MS = 200

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoadError:
    """Why the files as they are now do not serve."""

    file: str
    line: int | None
    message: str
    at: float
    """Unix time, seconds."""


@dataclass(frozen=True, slots=True)
class StoreStatus:
    """Which configuration serves, and whether the files have gone bad since."""

    sha: str
    loaded_at: float
    last_error: LoadError | None
    """None as soon as the files are good again."""
    num_reloads: int
    """How often another snapshot has replaced the one before."""


class ConfigStore:
    """Holds one snapshot; ``watch`` swaps it for a new one in a single assignment."""

    def __init__(self, folder: ConfigFolder, clock: Callable[[], float]) -> None:
        """Load ``folder``. Raises ConfigError where nothing valid is there."""
        self._folder = folder
        self._clock = clock
        files, self._seen = folder.read()
        self._snapshot = build_snapshot(read_documents(files), clock())
        self._last_error: LoadError | None = None
        self._num_reloads = 0

    @classmethod
    def open(cls, folder: Path, clock: Callable[[], float] = time.time) -> ConfigStore:
        """Load the documents under ``folder``. Raises ConfigError where nothing valid is there."""
        return cls(ConfigFolder(folder), clock)

    @property
    def snapshot(self) -> Snapshot:
        return self._snapshot

    def status(self) -> StoreStatus:
        return StoreStatus(self._snapshot.sha, self._snapshot.loaded_at, self._last_error, self._num_reloads)

    def reload(self) -> None:
        """Take the files over if they changed; broken ones change nothing but the status (hermes#60591)."""
        seen = self._folder.fingerprint()
        if seen == self._seen:
            return
        self._seen = seen  # from before reading: what is written meanwhile is seen to differ at the next ring
        try:
            files, self._seen = self._folder.read()
            fresh = build_snapshot(read_documents(files), self._clock())
        except ConfigError as error:
            self._last_error = LoadError(error.file, error.line, error.message, self._clock())
            log(
                logger,
                logging.ERROR,
                "configuration_broken",
                file=error.file,
                line=error.line,
                reason=error.message,
            )
            return
        self._last_error = None
        if fresh.sha != self._snapshot.sha:
            self._snapshot = fresh
            self._num_reloads += 1
            log(logger, logging.INFO, "configuration_loaded", sha=fresh.sha)

    async def watch(self) -> None:
        """Reload on every change, until cancelled."""
        async for _ in self._rings():
            await asyncio.to_thread(self.reload)

    async def _rings(self) -> AsyncIterator[None]:
        """Ring on a change in the folder, and every second: a bell, with the poll as the safety net.

        The poll finds what no event tells: a folder that is itself a swapped link, or a network file system.
        """
        path = self._folder.path
        try:
            bell = awatch(
                path,
                watch_filter=None,
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
