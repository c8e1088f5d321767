"""Keys with known secrets, and stores of them."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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


@pytest.fixture
def open_store(tmp_path: Path, namespace: str, valkey_url: str) -> Callable[..., KeyStore]:
    """Open a store of a namespace of its own: of a file, or of the fleet's keys alone."""

    def open_it(file: Path | None = None, url: str = valkey_url, **more: Any) -> KeyStore:
        sources = KeySources(
            file=KeyFile(file) if file else None,
            redis=Redis.from_url(url, socket_timeout=2.0, socket_connect_timeout=2.0),
            names=KeyNames(namespace),
            copy=KeyCopy(tmp_path / "copy.json"),
            poll_s=0.2,
        )
        return KeyStore(sources, more.get("clock", time.time))

    return open_it
