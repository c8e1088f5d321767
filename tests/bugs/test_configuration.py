"""Public reports about configuration, as inputs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.store.watch import ConfigStore
from tests.conftest import WaitUntil

RELOAD_S = 2.0
DEFAULT = "task_type: default\ngravity_strength: 0\n"
OTHER = "task_type: other\ngravity_strength: 1.5\npenalize: [movie, recipe]\n"
EXPERIMENT = """\
id: gain
tasks: [other]
enrol_seed: a
arm_seed: b
arms:
  - {name: treatment, start: 0.0}
  - {name: control, start: 0.5, pruning: false}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tasks").mkdir()
    (tmp_path / "experiments").mkdir()
    (tmp_path / "tasks" / "default.yaml").write_text(DEFAULT)
    (tmp_path / "tasks" / "other.yaml").write_text(OTHER)
    (tmp_path / "experiments" / "gain.yaml").write_text(EXPERIMENT)
    return tmp_path


@contextlib.asynccontextmanager
async def watched(folder: Path) -> AsyncIterator[ConfigStore]:
    store = ConfigStore.open(folder)
    watch = asyncio.create_task(store.watch())
    try:
        yield store
    finally:
        watch.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watch


def problem(store: ConfigStore) -> str:
    error = store.status().last_error
    return f"{error.file}:{error.line}: {error.message}" if error else ""


async def test_a_half_written_file_keeps_the_version_that_serves(folder: Path, wait_until: WaitUntil) -> None:
    """hermes#60591"""
    async with watched(folder) as store:
        before = store.snapshot
        path = folder / "tasks" / "other.yaml"
        path.write_text(OTHER[: OTHER.index("recipe")])  # the list is open
        await asyncio.to_thread(wait_until, lambda: problem(store), timeout_s=RELOAD_S)
        assert problem(store).startswith("tasks/other.yaml:3: is not YAML")
        assert store.snapshot is before
        path.write_text("")  # an editor that truncates first
        await asyncio.to_thread(wait_until, lambda: "is empty" in problem(store), timeout_s=RELOAD_S)
        assert store.snapshot is before
        path.write_text(OTHER.replace("1.5", "2.5"))
        await asyncio.to_thread(wait_until, lambda: store.snapshot is not before, timeout_s=RELOAD_S)
        assert store.snapshot.tasks["other"].gravity_strength == 2.5
        assert store.status().last_error is None
        assert before.tasks["other"].gravity_strength == 1.5  # who began with it keeps it


async def test_a_configuration_whose_third_part_fails_is_not_applied_at_all(folder: Path) -> None:
    """production-stack, read in its source: it applied what it had built before the failure."""
    store = ConfigStore.open(folder)
    before = store.snapshot
    (folder / "tasks" / "default.yaml").write_text(DEFAULT.replace("0", "0.5"))
    (folder / "tasks" / "third.yaml").write_text("task_type: third\n")
    (folder / "experiments" / "gain.yaml").write_text(EXPERIMENT.replace("[other]", "[nowhere]"))
    store.reload()
    assert store.snapshot is before
    assert "third" not in store.snapshot.tasks
    assert store.snapshot.tasks["default"].gravity_strength == 0.0
    error = store.status().last_error
    assert error is not None
    assert error.file == "experiments/gain.yaml"
    assert "nowhere" in error.message
    assert store.status().num_reloads == 0
