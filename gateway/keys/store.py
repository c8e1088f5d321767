"""The keys in force: those of the file and those of the fleet, reloaded when either changes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from redis.asyncio import Redis
from redis.exceptions import RedisError

from gateway.errors import ConfigError
from gateway.keys.copy import KeyCopy
from gateway.keys.file import Fingerprint, KeyFile
from gateway.keys.fleet import read_fleet
from gateway.keys.key import Key
from gateway.keys.keyring import Keyring
from gateway.keys.names import KeyNames
from gateway.store.bells import channel_rings, folder_rings
from gateway.telemetry.logs import log

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class KeySources:
    """Where keys come from."""

    file: KeyFile | None
    redis: Redis
    names: KeyNames
    copy: KeyCopy
    poll_s: float


@dataclass(frozen=True, slots=True)
class KeyStatus:
    """How many keys there are, and what is wrong with a source; empty where nothing is."""

    num_keys: int
    file_error: str
    fleet_error: str

    @property
    def is_current(self) -> bool:
        """Whether what the sources have now is what serves."""
        return not (self.file_error or self.fleet_error)


class KeyStore:
    """Holds one ring; a reload swaps it in a single assignment. What cannot be read changes nothing."""

    def __init__(self, sources: KeySources, clock: Callable[[], float]) -> None:
        """Read the file. Raises ConfigError where one is named and cannot serve."""
        self._sources = sources
        self._clock = clock
        self._seen: Fingerprint | None = None
        self._file_error = ""
        self._fleet_error = "not read yet"
        self._of_file: Mapping[str, Key] = {}
        self._of_fleet: Mapping[str, Key] = sources.copy.read()
        if sources.file is not None:
            self._seen = sources.file.fingerprint()
            self._of_file = sources.file.read()
        self.ring = self._ring()

    @property
    def is_configured(self) -> bool:
        """Whether keys are asked for: there are some, revoked ones included, or a file that is for them."""
        return self._sources.file is not None or bool(self.ring.keys)

    def status(self) -> KeyStatus:
        return KeyStatus(len(self.ring.keys), self._file_error, self._fleet_error)

    def watches(self) -> Mapping[str, Callable[[], Awaitable[None]]]:
        """Return what is to run by name, each until it is cancelled: a reload whenever a source rings."""
        file = self._sources.file
        of_file = {} if file is None else {"watch key file": lambda: self._watch_file(file)}
        return {"watch fleet's keys": self._watch_fleet, **of_file}

    async def reload_fleet(self) -> None:
        """Take over the fleet's keys. Redis away, or empty where it had some, changes nothing."""
        try:
            keys = await read_fleet(self._sources.redis, self._sources.names)
        except (RedisError, OSError) as error:
            self._fleet_error = self._noted(self._fleet_error, f"Redis does not answer: {error}")
            return
        if not keys and self._of_fleet:
            # Commands never take a key out, so it has lost them: to be open now would be wrong.
            self._fleet_error = self._noted(self._fleet_error, "Redis has lost the keys")
            return
        self._fleet_error = ""
        if keys != self._of_fleet:
            self._of_fleet = keys
            self.ring = self._ring()
            await asyncio.to_thread(self._sources.copy.write, keys)
            log(logger, logging.INFO, "keys_loaded", num_keys=len(self.ring.keys), source="fleet")

    def reload_file(self, file: KeyFile) -> None:
        """Take over the file where it has changed; a broken one changes nothing but the status."""
        seen = file.fingerprint()
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self._of_file = file.read()
        except ConfigError as error:
            place = f"{error.file}:{error.line}" if error.line else error.file
            self._file_error = self._noted(self._file_error, f"{place}: {error.message}")
            return
        self._file_error = ""
        self.ring = self._ring()
        log(logger, logging.INFO, "keys_loaded", num_keys=len(self.ring.keys), source="file")

    async def _watch_fleet(self) -> None:
        sources = self._sources
        async with contextlib.aclosing(
            channel_rings(sources.redis, sources.names.bell, sources.poll_s)
        ) as rings:
            async for _ in rings:
                await self.reload_fleet()

    async def _watch_file(self, file: KeyFile) -> None:
        # The folder, not the file: a mounted secret is changed by swapping a link.
        async with contextlib.aclosing(folder_rings(file.path.parent)) as rings:
            async for _ in rings:
                await asyncio.to_thread(self.reload_file, file)

    def _ring(self) -> Keyring:
        return Keyring({**self._of_fleet, **self._of_file}, self._clock)

    def _noted(self, before: str, now: str) -> str:
        """Return the reason; it is logged once and not at every poll."""
        if before != now:
            log(logger, logging.ERROR, "keys_not_reloaded", reason=now)
        return now
