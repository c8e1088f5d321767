"""Keys with known secrets, and stores of them."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from redis.asyncio import Redis

from gateway.keys.copy import KeyCopy
from gateway.keys.file import KeyFile
from gateway.keys.names import KeyNames
from gateway.keys.store import KeySources, KeyStore
from tests.servers.keys import MadeKey, made_key

__all__ = ["MadeKey", "made_key"]


@dataclass(frozen=True, slots=True)
class Shelf:
    """A file of keys in a folder of its own."""

    path: Path

    def holds(self, *keys: MadeKey) -> None:
        self.path.write_text(yaml.safe_dump({"keys": [key.entry for key in keys]}))


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path / "keys.yaml")


@pytest.fixture
def namespace() -> str:
    return f"test-{uuid.uuid4().hex}"


@contextlib.asynccontextmanager
async def running(watches: Mapping[str, Callable[[], Awaitable[None]]]) -> AsyncIterator[None]:
    """Run what runs in the background of a gateway, as long as the block does."""
    tasks = {asyncio.ensure_future(work()) for work in watches.values()}
    try:
        yield
    finally:
        while tasks:
            for task in tasks:
                task.cancel()
            _, tasks = await asyncio.wait(tasks, timeout=0.2)


class OpenStore:
    """Opens stores of one namespace: of a file, or of the fleet's keys alone."""

    def __init__(self, folder: Path, namespace: str, url: str) -> None:
        self._folder = folder
        self._namespace = namespace
        self._url = url
        self._clients: list[Redis] = []

    def __call__(self, file: Path | None = None, url: str = "") -> KeyStore:
        redis = Redis.from_url(url or self._url, socket_timeout=2.0, socket_connect_timeout=2.0)
        self._clients.append(redis)
        sources = KeySources(
            file=KeyFile(file) if file else None,
            redis=redis,
            names=KeyNames(self._namespace),
            copy=KeyCopy(self._folder / "copy.json"),
            poll_s=0.2,
        )
        return KeyStore(sources, time.time)

    async def reloaded(self, store: KeyStore) -> None:
        """Read the fleet's keys once, in a loop that ends then."""
        await store.reload_fleet()
        await self.close()

    async def close(self) -> None:
        for client in self._clients:
            await client.aclose()


@pytest.fixture
def open_store(tmp_path: Path, namespace: str, valkey_url: str) -> OpenStore:
    return OpenStore(tmp_path, namespace, valkey_url)
