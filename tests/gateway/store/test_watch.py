"""Real files, changed while they are watched."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gateway.errors import ConfigError
from gateway.store.centre import Note
from gateway.store.documents import Documents
from gateway.store.folder_centre import FolderCentre
from gateway.store.proposal import Rules
from gateway.store.watch import ConfigStore
from tests.conftest import WaitUntil
from tests.watching import watched

RELOAD_S = 2.0
Until = Callable[[Callable[[], bool]], Awaitable[bool]]


def write(folder: Path, strength: float) -> Path:
    tasks = folder / "tasks"
    tasks.mkdir(parents=True, exist_ok=True)
    (tasks / "default.yaml").write_text(f"task_type: default\ngravity_strength: {strength}\n")
    return folder


def strength(store: ConfigStore) -> float:
    return store.snapshot.tasks["default"].gravity_strength


@pytest.fixture
def until(wait_until: WaitUntil) -> Until:
    """Wait beside the event loop, which goes on; fails after the time that a reload may take."""
    return partial(asyncio.to_thread, wait_until, timeout_s=RELOAD_S)


def test_nothing_valid_is_an_error_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such folder"):
        ConfigStore.open(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="default"):
        ConfigStore.open(tmp_path)
    write(tmp_path, 1.0)
    (tmp_path / "tasks" / "broken.yaml").write_text("task_type: [")
    with pytest.raises(ConfigError) as caught:
        ConfigStore.open(tmp_path)
    assert caught.value.file == "tasks/broken.yaml"


async def test_a_change_serves_within_two_seconds(tmp_path: Path, until: Until) -> None:
    async with watched(write(tmp_path, 1.0)) as store:
        before = store.snapshot
        write(tmp_path, 2.0)
        await until(lambda: strength(store) == 2.0)
        assert store.status().num_reloads == 1
        assert store.status().sha == store.snapshot.sha != before.sha


async def test_a_new_file_and_a_removed_one_are_seen(tmp_path: Path, until: Until) -> None:
    async with watched(write(tmp_path, 1.0)) as store:
        added = tmp_path / "tasks" / "added.yaml"
        added.write_text("task_type: added\n")
        await until(lambda: "added" in store.snapshot.tasks)
        added.unlink()
        await until(lambda: "added" not in store.snapshot.tasks)


async def test_a_rename_over_the_file_is_seen(tmp_path: Path, until: Until) -> None:
    async with watched(write(tmp_path, 1.0)) as store:
        fresh = tmp_path / "fresh"
        fresh.write_text("task_type: default\ngravity_strength: 3.0\n")
        fresh.rename(tmp_path / "tasks" / "default.yaml")
        await until(lambda: strength(store) == 3.0)


async def test_a_swapped_link_of_a_mounted_config_map_is_seen(tmp_path: Path, until: Until) -> None:
    """Kubernetes writes a new folder and swaps ``..data``; the files are links into it."""
    mount = tmp_path / "tasks"
    mount.mkdir()
    for version, value in (("..one", 1.0), ("..two", 2.0)):
        (mount / version).mkdir()
        text = f"task_type: default\ngravity_strength: {value}\n"
        (mount / version / "default.yaml").write_text(text)
    (mount / "..data").symlink_to("..one")
    (mount / "default.yaml").symlink_to("..data/default.yaml")
    async with watched(tmp_path) as store:
        assert strength(store) == 1.0
        (mount / "..next").symlink_to("..two")
        (mount / "..next").rename(mount / "..data")
        await until(lambda: strength(store) == 2.0)


async def test_a_folder_that_is_a_swapped_link_is_seen_by_the_poll(tmp_path: Path, until: Until) -> None:
    write(tmp_path / "one", 1.0)
    write(tmp_path / "two", 2.0)
    current = tmp_path / "current"
    current.symlink_to("one")
    async with watched(current) as store:
        assert strength(store) == 1.0
        (tmp_path / "next").symlink_to("two")
        (tmp_path / "next").rename(current)
        await until(lambda: strength(store) == 2.0)


async def test_a_folder_that_goes_away_and_comes_back_is_survived(tmp_path: Path, until: Until) -> None:
    folder = write(tmp_path / "configs", 1.0)
    async with watched(folder) as store:
        folder.rename(tmp_path / "elsewhere")
        await until(lambda: store.status().last_error is not None)
        assert strength(store) == 1.0
        write(folder, 4.0)
        await until(lambda: strength(store) == 4.0)
        assert store.status().last_error is None


async def test_the_error_names_file_and_line_and_goes_when_it_is_mended(tmp_path: Path, until: Until) -> None:
    async with watched(write(tmp_path, 1.0)) as store:
        path = tmp_path / "tasks" / "default.yaml"
        path.write_text("task_type: default\ngravity_strength: high\n")
        await until(lambda: store.status().last_error is not None)
        error = store.status().last_error
        assert error is not None
        assert (error.file, error.line) == ("tasks/default.yaml", 2)
        assert error.message.startswith("gravity_strength: ")
        assert store.status().num_reloads == 0
        write(tmp_path, 1.0)
        await until(lambda: store.status().last_error is None)
        assert store.status().num_reloads == 0  # the same content serves as before


async def test_a_file_that_was_mended_while_the_broken_one_was_read_is_not_missed(tmp_path: Path) -> None:
    """The fingerprint that is remembered is from before the reading."""
    store = ConfigStore.open(write(tmp_path, 1.0))
    path = tmp_path / "tasks" / "default.yaml"
    path.write_text("task_type: [")
    store.reload()
    assert store.status().last_error is not None
    write(tmp_path, 5.0)
    store.reload()
    assert strength(store) == 5.0


def test_a_file_without_a_change_is_not_read_again(tmp_path: Path) -> None:
    store = ConfigStore.open(write(tmp_path, 1.0), clock=time.time)
    before = store.snapshot
    store.reload()
    assert store.snapshot is before
    os.utime(tmp_path / "tasks" / "default.yaml")  # touched, with the same content
    store.reload()
    assert store.snapshot is before


async def test_a_publish_into_the_folder_is_one_reload(tmp_path: Path, until: Until) -> None:
    async with watched(write(tmp_path, 1.0)) as store:
        centre = FolderCentre(tmp_path, Rules())
        default: dict[str, Any] = {"task_type": "default", "gravity_strength": 1.5}
        wanted = {"default": default, "other": {"task_type": "other"}}
        published = await asyncio.to_thread(
            centre.publish, Documents(wanted, {}), Note("anna", "two files at once")
        )
        await until(lambda: store.snapshot.sha == published.sha)
        status = store.status()
        assert (status.number, status.num_reloads, status.last_error) == (1, 1, None)


def test_versions_beside_the_files_are_no_documents(tmp_path: Path) -> None:
    store = ConfigStore.open(write(tmp_path, 1.0))
    before = store.snapshot
    versions = tmp_path / ".versions" / "tasks"
    versions.mkdir(parents=True)
    (versions / "broken.yaml").write_text("task_type: [")
    store.reload()
    assert (store.snapshot, store.status().last_error) == (before, None)


def test_files_that_are_no_documents_are_left_alone(tmp_path: Path) -> None:
    folder = write(tmp_path, 1.0)
    (folder / "tasks" / ".default.yaml.swp").write_text("junk: [")
    (folder / "tasks" / "README.md").write_text("# words")
    assert list(ConfigStore.open(folder).snapshot.tasks) == ["default"]
