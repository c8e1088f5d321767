"""Both stores of a configuration, each on a place of its own."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from gateway.store.centre import ConfigCentre, Note
from gateway.store.documents import Documents
from gateway.store.folder_centre import FolderCentre
from gateway.store.proposal import Rules
from gateway.store.redis_centre import RedisCentre

MakeDocuments = Callable[..., Documents]


@pytest.fixture(scope="session")
def make_documents() -> MakeDocuments:
    """Documents with a task ``default`` of the given strength, and whatever other tasks are named."""

    def make(strength: float = 0.5, **tasks: dict[str, Any]) -> Documents:
        default = {"task_type": "default", "gravity_strength": strength}
        others = {name: {"task_type": name, **fields} for name, fields in tasks.items()}
        return Documents({"default": default, **others}, {})

    return make


@pytest.fixture(scope="session")
def redis(valkey_url: str) -> Iterator[Redis]:
    with Redis.from_url(valkey_url, socket_timeout=2.0) as client:
        yield client


@pytest.fixture
def namespace() -> str:
    return f"test-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def redis_centre(redis: Redis, namespace: str) -> RedisCentre:
    return RedisCentre(redis, namespace, Rules())


@pytest.fixture
def folder_centre(tmp_path: Path) -> FolderCentre:
    """A folder with one file, never published to."""
    (tmp_path / "configs" / "tasks").mkdir(parents=True)
    (tmp_path / "configs" / "tasks" / "default.yaml").write_text("task_type: default\n")
    return FolderCentre(tmp_path / "configs", Rules())


@pytest.fixture(params=["folder", "redis"])
def centre(request: pytest.FixtureRequest, make_documents: MakeDocuments) -> ConfigCentre:
    """A store that was published to once, with strength 0.5."""
    found: ConfigCentre = request.getfixturevalue(f"{request.param}_centre")
    found.publish(make_documents(0.5), Note("anna", "to begin with"))
    return found
