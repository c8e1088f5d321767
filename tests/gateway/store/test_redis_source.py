"""The configuration in force of a fleet: real Valkey, real bells, a real disk."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from redis import Redis

from gateway.errors import CentreUnavailable, ConfigError
from gateway.flow.dry_build import dry_build
from gateway.settings import GatewaySettings
from gateway.store.centre import Note
from gateway.store.connection import open_redis
from gateway.store.documents import Documents
from gateway.store.keys import ConfigKeys
from gateway.store.opening import open_centre, open_store
from gateway.store.watch import ConfigStore
from tests.conftest import StartValkey, WaitUntil
from tests.gateway.store.conftest import MakeDocuments
from tests.watching import replica

WHY = Note("anna", "for a reason")
RELOAD_S = 2.0
DOCUMENT = "task_type: default\ngravity_strength: 0.25\n"
Until = Callable[[Callable[[], object]], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Fleet:
    """Gateways' stores over one namespace; each has a disk of its own."""

    folder: Path
    namespace: str

    def settings(self, url: str, poll_s: float = 0.05, disk: str = "one") -> GatewaySettings:
        return GatewaySettings(
            config_store="redis",
            config_namespace=self.namespace,
            config_dir=self.folder / "configs",
            state_dir=self.folder / disk,
            config_poll_s=poll_s,
            redis_url=url,
            redis_timeout_s=0.5,
        )

    def copy(self, disk: str = "one") -> Path:
        return self.folder / disk / f"{self.namespace}.json"


@pytest.fixture
def fleet(tmp_path: Path, namespace: str) -> Fleet:
    (tmp_path / "configs" / "tasks").mkdir(parents=True)
    (tmp_path / "configs" / "tasks" / "default.yaml").write_text(
        "task_type: default\ngravity_strength: 0.25\n"
    )
    return Fleet(tmp_path, namespace)


@pytest.fixture
def own_valkey(start_valkey: StartValkey) -> Iterator[tuple[str, Callable[[], None], Callable[[], None]]]:
    """URL of a Valkey, and how to kill it and to start it again, empty, at the same address."""
    running = [start_valkey()]

    def kill() -> None:
        running[-1].process.kill()
        running[-1].process.wait()

    def start() -> None:
        running.append(start_valkey(int(running[0].url.rsplit(":", 1)[1].partition("/")[0])))

    yield running[0].url, kill, start
    running[-1].end()


def open_(settings: GatewaySettings) -> ConfigStore:
    return open_store(settings, open_redis(settings), time.time, dry_build)


def strength(store: ConfigStore) -> float:
    return store.snapshot.tasks["default"].gravity_strength


def problem(store: ConfigStore) -> str:
    error = store.status().last_error
    return f"{error.file}: {error.message}" if error else ""


@pytest.fixture
def until(wait_until: WaitUntil) -> Until:
    """Wait beside the event loop; fails after the time that a reload may take."""
    return partial(asyncio.to_thread, wait_until, timeout_s=RELOAD_S)


def test_an_empty_namespace_is_filled_once_from_the_folder(fleet: Fleet, valkey_url: str) -> None:
    first = open_(fleet.settings(valkey_url))
    (fleet.folder / "configs" / "tasks" / "default.yaml").write_text("task_type: default\n")
    second = open_(fleet.settings(valkey_url, disk="two"))
    assert strength(first) == strength(second) == 0.25
    assert (first.status().number, second.status().number) == (1, 1)
    history = open_centre(fleet.settings(valkey_url)).history()
    assert [(change.kind, change.who, change.from_sha) for change in history] == [("first", "gateway", "")]


async def test_the_bell_brings_a_publish_to_every_gateway(
    fleet: Fleet, valkey_url: str, until: Until, make_documents: MakeDocuments
) -> None:
    settings = fleet.settings(valkey_url, poll_s=60.0)
    async with replica(settings) as one, replica(settings) as two, replica(settings) as three:
        before = one.snapshot
        centre = open_centre(settings)
        for value in (0.5, 1.25):  # each rings: a bell is not used up by who hears it first
            published = await asyncio.to_thread(centre.publish, make_documents(value), WHY)
            await until(lambda value=value: {strength(s) for s in (one, two, three)} == {value})  # type: ignore[misc]
        assert {s.status().sha for s in (one, two, three)} == {published.sha}
        assert {s.status().number for s in (one, two, three)} == {3}
        assert before.tasks["default"].gravity_strength == 0.25  # who began with it keeps it


async def test_the_poll_finds_what_no_bell_told(
    fleet: Fleet, valkey_url: str, redis: Redis, until: Until, make_documents: MakeDocuments
) -> None:
    async with replica(fleet.settings(valkey_url)) as store:
        keys, wanted = ConfigKeys(fleet.namespace), make_documents(0.75)
        redis.set(keys.snapshot(wanted.sha), wanted.as_bytes())
        redis.hset(keys.head, mapping={"number": "9", "sha": wanted.sha})
        await until(lambda: strength(store) == 0.75)
        assert store.status().number == 9


@pytest.mark.parametrize("damage", ["value", "missing", "changed", "unbuildable"])
async def test_a_head_that_cannot_serve_changes_nothing_but_the_status(
    fleet: Fleet, valkey_url: str, redis: Redis, until: Until, damage: str
) -> None:
    keys = ConfigKeys(fleet.namespace)
    default = {"task_type": "default", "gravity_strength": 99.0 if damage == "value" else 1.0}
    third = {"task_type": "third", "context": {"template": "no text"}} if damage == "unbuildable" else None
    bad = Documents({"default": default, **({"third": third} if third else {})}, {})
    async with replica(fleet.settings(valkey_url)) as store:
        before = store.snapshot
        if damage != "missing":
            content = bad.as_bytes()
            redis.set(keys.snapshot(bad.sha), content[:-1] + b" }" if damage == "changed" else content)
        redis.hset(keys.head, mapping={"number": "2", "sha": bad.sha})
        await until(lambda: problem(store))
        assert store.snapshot is before
        assert (store.status().number, store.status().num_reloads) == (1, 0)
        assert json.loads(fleet.copy().read_text())["sha"] == before.sha
        redis.hset(keys.head, mapping={"number": "3", "sha": before.sha})
        await until(lambda: store.status().number == 3 and not problem(store))
    # A gateway that starts on the bad head serves the copy.
    redis.hset(keys.head, mapping={"number": "4", "sha": bad.sha})
    again = open_(fleet.settings(valkey_url))
    assert again.status().is_last_good
    assert again.snapshot.sha == before.sha
    assert problem(again)


def test_a_bad_head_without_a_copy_is_no_start(fleet: Fleet, valkey_url: str, redis: Redis) -> None:
    keys, bad = ConfigKeys(fleet.namespace), Documents({"default": {"task_type": "x"}}, {})
    redis.set(keys.snapshot(bad.sha), bad.as_bytes())
    redis.hset(keys.head, mapping={"number": "1", "sha": bad.sha})
    with pytest.raises(ConfigError, match="task_type"):
        open_(fleet.settings(valkey_url))


async def test_a_gateway_starts_without_redis_and_takes_the_head_over_when_it_is_back(
    fleet: Fleet,
    own_valkey: tuple[str, Callable[[], None], Callable[[], None]],
    until: Until,
    make_documents: MakeDocuments,
) -> None:
    url, kill, start = own_valkey
    settings = fleet.settings(url)
    served = open_(settings)
    kill()
    with pytest.raises(CentreUnavailable):
        open_(fleet.settings(url, disk="of another machine"))
    async with replica(settings) as store:
        status = store.status()
        assert (status.sha, status.number, status.is_last_good) == (served.snapshot.sha, 1, True)
        assert "does not answer" in problem(store)
        await asyncio.to_thread(start)  # it kept nothing
        await until(lambda: "is empty" in problem(store))
        assert strength(store) == 0.25
        centre = open_centre(settings)
        assert centre.history() == ()  # nobody fills up what was lost
        await asyncio.to_thread(centre.publish, make_documents(0.75), WHY)
        await until(lambda: strength(store) == 0.75)
        status = store.status()
        assert (status.last_error, status.is_last_good, status.num_reloads) == (None, False, 1)


async def test_a_head_that_moved_while_redis_could_not_be_reached_is_taken_over(
    fleet: Fleet, start_valkey: StartValkey, until: Until, make_documents: MakeDocuments
) -> None:
    running = start_valkey()
    settings = fleet.settings(running.url)
    served = open_(settings)
    open_centre(settings).publish(make_documents(0.75), WHY)
    running.signal(signal.SIGSTOP)  # connections are taken, and nothing answers
    async with replica(settings) as store:
        assert store.snapshot.sha == served.snapshot.sha
        assert store.status().is_last_good
        running.signal(signal.SIGCONT)
        await until(lambda: strength(store) == 0.75)
        status = store.status()
        assert (status.number, status.is_last_good, status.last_error) == (2, False, None)


async def test_redis_away_is_told_and_forgotten(
    fleet: Fleet, own_valkey: tuple[str, Callable[[], None], Callable[[], None]], until: Until
) -> None:
    url, kill, start = own_valkey
    settings = fleet.settings(url)
    async with replica(settings) as store:
        before, exported = store.snapshot, open_centre(settings).export()
        kill()
        await until(lambda: "does not answer" in problem(store))
        await asyncio.to_thread(start)
        open_centre(settings).import_(exported, WHY)
        await until(lambda: not problem(store))
        assert store.snapshot is before
        assert store.status().number == 2


def test_a_damaged_copy_is_not_served(
    fleet: Fleet, own_valkey: tuple[str, Callable[[], None], Callable[[], None]]
) -> None:
    url, kill, _ = own_valkey
    open_(fleet.settings(url))
    kill()
    fleet.copy().write_text(fleet.copy().read_text().replace("0.25", "0.35"))
    with pytest.raises(CentreUnavailable):
        open_(fleet.settings(url))


def test_a_copy_that_cannot_be_written_stops_nothing(fleet: Fleet, valkey_url: str) -> None:
    (fleet.folder / "one").write_text("a file where the folder should be")
    assert strength(open_(fleet.settings(valkey_url))) == 0.25


def test_warnings_and_age_stay_in_the_status(fleet: Fleet, valkey_url: str) -> None:
    calibration = "calibration: {model: m, temperature: 0.3, s_mean: 0.1}\n"
    (fleet.folder / "configs" / "tasks" / "default.yaml").write_text("task_type: default\n" + calibration)
    times = iter([100.0, 107.5])
    settings = fleet.settings(valkey_url)
    store = open_store(settings, open_redis(settings), lambda: next(times), dry_build)
    status = store.status()
    assert (status.loaded_at, status.age_s) == (100.0, 7.5)
    assert "0.3" in status.warnings[0]


async def test_a_watch_ends_whenever_it_is_cancelled(fleet: Fleet, valkey_url: str) -> None:
    """A read of the bell that runs out of time as it is cancelled must not go on."""
    settings = fleet.settings(valkey_url, poll_s=0.001)
    bell = open_redis(settings)
    source = open_store(settings, bell, time.time, dry_build)
    for n in range(300):
        watch = asyncio.create_task(source.watch())
        for _ in range(n % 40):
            await asyncio.sleep(0)
        watch.cancel()
        done, _ = await asyncio.wait([watch], timeout=5.0)
        assert done
    await bell.aclose()
