"""Configuration stores that watch their source, for as long as a block lasts."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path

from gateway.flow.dry_build import dry_build
from gateway.settings import GatewaySettings
from gateway.store.connection import open_redis
from gateway.store.opening import open_store
from gateway.store.watch import ConfigStore


@contextlib.asynccontextmanager
async def watched(folder: Path) -> AsyncIterator[ConfigStore]:
    """A store over the documents of a folder."""
    async with _watching(ConfigStore.open(folder)) as store:
        yield store


@contextlib.asynccontextmanager
async def replica(settings: GatewaySettings) -> AsyncIterator[ConfigStore]:
    """A store as a gateway with these settings has it."""
    bell = open_redis(settings)
    try:
        async with _watching(open_store(settings, bell, time.time, dry_build)) as store:
            yield store
    finally:
        await bell.aclose()


@contextlib.asynccontextmanager
async def _watching(store: ConfigStore) -> AsyncIterator[ConfigStore]:
    watch = asyncio.create_task(store.watch())
    try:
        yield store
    finally:
        watch.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watch
