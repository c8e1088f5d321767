"""The configuration in force: loaded once, reloaded when its source changes, the last good one kept."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gateway.errors import CentreUnavailable, ConfigError, UnknownVersion
from gateway.store.backend import ConfigFolder
from gateway.store.folder_source import FolderSource
from gateway.store.loading import ConfigSource, Loaded
from gateway.store.proposal import builds_nothing
from gateway.store.snapshot import Snapshot, build_snapshot
from gateway.store.warnings import warnings_of
from gateway.telemetry.logs import log

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoadError:
    """Why what the source has now does not serve."""

    file: str
    line: int | None
    message: str
    at: float
    """Unix time, seconds."""


@dataclass(frozen=True, slots=True)
class StoreStatus:
    """Which configuration serves, and whether its source has gone bad since."""

    sha: str
    loaded_at: float
    last_error: LoadError | None
    """None as soon as the source is good again."""
    num_reloads: int
    """How often another snapshot has replaced the one before."""
    number: int = 0
    """The head's number; 0 for a folder that was never published to."""
    age_s: float = 0.0
    """Since this snapshot came into force here."""
    warnings: tuple[str, ...] = ()
    is_last_good: bool = False
    """Served from the copy on disk: the store has not been reached, or what it has cannot serve."""


@dataclass(frozen=True, slots=True)
class _Served:
    snapshot: Snapshot
    number: int
    is_last_good: bool = False


class ConfigStore:
    """Holds one snapshot; ``watch`` swaps it for a new one in a single assignment."""

    def __init__(
        self,
        source: ConfigSource,
        clock: Callable[[], float],
        dry_build: Callable[[Snapshot], None] = builds_nothing,
    ) -> None:
        """Load what ``source`` has, else its last good copy. Raises ConfigError where neither can serve.

        ``dry_build`` builds all that could fail later with a snapshot, and raises ConfigError.
        """
        self._source = source
        self._clock = clock
        self._dry_build = dry_build
        self._broken: LoadError | None = None
        """What was read cannot serve: stays until something else is read."""
        self._silent: LoadError | None = None
        """Nothing could be read: goes as soon as the source answers."""
        self._num_reloads = 0
        self._served = self._first()

    @classmethod
    def open(cls, folder: Path, clock: Callable[[], float] = time.time) -> ConfigStore:
        """Load the documents under ``folder``. Raises ConfigError where nothing valid is there."""
        return cls(FolderSource(ConfigFolder(folder)), clock)

    @property
    def snapshot(self) -> Snapshot:
        return self._served.snapshot

    def status(self) -> StoreStatus:
        served = self._served
        return StoreStatus(
            sha=served.snapshot.sha,
            loaded_at=served.snapshot.loaded_at,
            last_error=self._silent or self._broken,
            num_reloads=self._num_reloads,
            number=served.number,
            age_s=max(0.0, self._clock() - served.snapshot.loaded_at),
            warnings=warnings_of(served.snapshot),
            is_last_good=served.is_last_good,
        )

    def reload(self) -> None:
        """Take over what changed; what is broken changes nothing but the status (hermes#60591)."""
        try:
            if not self._source.has_changed():
                self._silent = None
                return
            loaded = self._source.load()
            fresh = self._built(loaded)
        except ConfigError as error:
            self._note(error)
            return
        self._silent = self._broken = None
        self._swap(loaded, fresh)

    async def watch(self) -> None:
        """Reload on every ring of the source, until cancelled."""
        async with contextlib.aclosing(self._source.rings()) as rings:
            async for _ in rings:
                await asyncio.to_thread(self.reload)

    def _first(self) -> _Served:
        try:
            loaded = self._source.load()
            served = _Served(self._built(loaded), loaded.number)
        except ConfigError as error:
            copy = self._source.last_good()
            if copy is None:
                raise
            served = _Served(self._built(copy), copy.number, is_last_good=True)
            self._note(error)
            log(logger, logging.WARNING, "configuration_last_good", sha=copy.sha, number=copy.number)
            return served
        self._source.keep(loaded)
        return served

    def _built(self, loaded: Loaded) -> Snapshot:
        try:
            snapshot = build_snapshot(loaded.documents, self._clock())
            self._dry_build(snapshot)
        except ConfigError as error:
            error.file = loaded.places.get(error.file, error.file)
            raise
        return snapshot

    def _swap(self, loaded: Loaded, fresh: Snapshot) -> None:
        current = self._served.snapshot
        is_new = fresh.sha != current.sha
        self._num_reloads += is_new
        self._served = _Served(fresh if is_new else current, loaded.number)
        self._source.keep(loaded)
        if is_new:
            log(logger, logging.INFO, "configuration_loaded", sha=fresh.sha, number=loaded.number)

    def _note(self, error: ConfigError) -> None:
        if isinstance(error, CentreUnavailable | UnknownVersion):
            self._silent = self._noted(error, self._silent)
        else:
            self._silent = None  # it has answered
            self._broken = self._noted(error, self._broken)

    def _noted(self, error: ConfigError, before: LoadError | None) -> LoadError:
        """Return the error for the status; it is logged once and not at every poll."""
        if before is not None and (before.file, before.message) == (error.file, error.message):
            return before
        log(
            logger,
            logging.ERROR,
            "configuration_broken",
            file=error.file,
            line=error.line,
            reason=error.message,
        )
        return LoadError(error.file, error.line, error.message, self._clock())
