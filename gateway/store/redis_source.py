"""A namespace in Redis as the source of the configuration in force."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path

from redis.asyncio import Redis

from gateway.errors import PublishConflict, UnknownVersion
from gateway.store.backend import ConfigFolder
from gateway.store.bells import channel_rings
from gateway.store.centre import Note
from gateway.store.editing import read_documents
from gateway.store.keys import ConfigKeys
from gateway.store.last_good import LastGood
from gateway.store.loading import Loaded
from gateway.store.redis_centre import RedisCentre

_FIRST = Note("gateway", "the namespace was empty: filled from the configuration folder", "first")


@dataclass(frozen=True, slots=True)
class RedisSettings:
    """What a gateway needs beside the centre."""

    first_folder: Path
    """What an empty namespace is filled from."""
    copy: LastGood
    poll_s: float


class RedisSource:
    """The namespace's head. An empty namespace is filled once, by whichever gateway comes first."""

    def __init__(self, centre: RedisCentre, bell: Redis, settings: RedisSettings) -> None:
        self._centre = centre
        self._bell = bell
        self._settings = settings
        self._seen: tuple[int, str] | None = None

    def has_changed(self) -> bool:
        place = self._centre.place()
        if not place[1] and (self._seen or self.last_good()):
            raise UnknownVersion(
                f"the namespace {self._centre.namespace!r} is empty, so Redis has lost it: what served last "
                "goes on serving; publish or import to fill it again"
            )
        return place != self._seen

    def load(self) -> Loaded:
        if self.has_changed() and not self._centre.place()[1]:
            self._fill()
        version = self._centre.head()
        self._seen = (version.number, version.sha)
        return Loaded(version.number, version.sha, version.documents)

    def last_good(self) -> Loaded | None:
        return self._settings.copy.read()

    def keep(self, loaded: Loaded) -> None:
        self._settings.copy.write(loaded)

    async def rings(self) -> AsyncGenerator[None, None]:
        """Ring when the head moves, and at every poll."""
        channel = ConfigKeys(self._centre.namespace).bell
        poll_s = self._settings.poll_s
        async with contextlib.aclosing(channel_rings(self._bell, channel, poll_s)) as rings:
            async for _ in rings:
                yield

    def _fill(self) -> None:
        documents = read_documents(ConfigFolder(self._settings.first_folder).read().files)
        try:
            self._centre.publish(documents, _FIRST, expected_sha="")
        except PublishConflict:
            return  # another gateway was first
