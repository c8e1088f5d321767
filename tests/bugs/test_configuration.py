"""Public reports about configuration, as inputs."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path

import pytest
from redis import Redis

from gateway.settings import GatewaySettings
from gateway.store.centre import Note
from gateway.store.documents import Documents
from gateway.store.keys import ConfigKeys
from gateway.store.opening import open_centre
from gateway.store.watch import ConfigStore
from tests.conftest import WaitUntil
from tests.watching import replica, watched

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


@pytest.fixture
def fleet(folder: Path, valkey_url: str) -> GatewaySettings:
    """A namespace of its own, filled from the folder by whoever opens it first."""
    return GatewaySettings(
        config_store="redis",
        config_namespace=f"bugs-{uuid.uuid4().hex[:12]}",
        config_dir=folder,
        state_dir=folder / "state",
        config_poll_s=0.05,
        redis_url=valkey_url,
    )


def with_strength(documents: Documents, strength: float) -> Documents:
    other = {**documents.tasks["other"], "gravity_strength": strength}
    return Documents({**documents.tasks, "other": other}, documents.experiments)


async def test_a_half_written_snapshot_in_redis_keeps_the_version_that_serves(
    fleet: GatewaySettings, valkey_url: str, wait_until: WaitUntil
) -> None:
    """hermes#60591, for the other store"""
    async with replica(fleet) as store:
        before, keys = store.snapshot, ConfigKeys(fleet.config_namespace)
        content = with_strength(open_centre(fleet).head().documents, 2.5)
        with Redis.from_url(valkey_url) as redis:
            redis.set(keys.snapshot(content.sha), content.as_bytes()[:-40])
            redis.hset(keys.head, mapping={"number": "2", "sha": content.sha})
            await asyncio.to_thread(wait_until, lambda: "is damaged" in problem(store), timeout_s=RELOAD_S)
            assert store.snapshot is before
            redis.set(keys.snapshot(content.sha), content.as_bytes())
        await asyncio.to_thread(wait_until, lambda: not problem(store), timeout_s=RELOAD_S)
        assert store.snapshot.tasks["other"].gravity_strength == 2.5


async def test_three_replicas_converge_also_the_one_that_was_away(
    fleet: GatewaySettings, wait_until: WaitUntil
) -> None:
    """litellm#37188: there a reload flag was used up by the first replica that saw it."""
    centre = open_centre(fleet)
    async with replica(fleet) as one, replica(fleet) as two:
        async with replica(fleet) as three:
            assert one.snapshot.sha == two.snapshot.sha == three.snapshot.sha
        # The third is down now, with what it served on its disk.
        wanted = with_strength(centre.head().documents, 2.0)
        published = await asyncio.to_thread(centre.publish, wanted, Note("anna", "while one is down"))
        both = (one, two)
        await asyncio.to_thread(
            wait_until, lambda: {each.snapshot.sha for each in both} == {published.sha}, timeout_s=RELOAD_S
        )
        async with replica(fleet) as three:
            assert three.snapshot.sha == published.sha
            last = await asyncio.to_thread(centre.rollback, "-1", Note("anna", "and back"))
            all_ = (one, two, three)
            await asyncio.to_thread(
                wait_until, lambda: {each.snapshot.sha for each in all_} == {last.sha}, timeout_s=RELOAD_S
            )
            assert {each.status().number for each in all_} == {3}


async def test_a_redis_snapshot_whose_third_part_fails_is_not_applied_at_all(
    fleet: GatewaySettings, valkey_url: str, wait_until: WaitUntil
) -> None:
    """production-stack, for the other store"""
    async with replica(fleet) as store:
        before, keys = store.snapshot, ConfigKeys(fleet.config_namespace)
        head = with_strength(open_centre(fleet).head().documents, 2.0)
        broken = {**head.experiments["gain"], "tasks": ["nowhere"]}
        content = Documents({**head.tasks, "third": {"task_type": "third"}}, {"gain": broken})
        with Redis.from_url(valkey_url) as redis:
            redis.set(keys.snapshot(content.sha), content.as_bytes())
            redis.hset(keys.head, mapping={"number": "2", "sha": content.sha})
        await asyncio.to_thread(wait_until, lambda: "nowhere" in problem(store), timeout_s=RELOAD_S)
        assert store.snapshot is before
        assert "third" not in store.snapshot.tasks
        assert store.snapshot.tasks["other"].gravity_strength == 1.5
