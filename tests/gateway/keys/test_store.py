"""The keys in force: a file and a fleet, reloaded as they change, kept when they cannot be read."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from gateway.errors import ConfigError
from gateway.keys.fleet import FleetKeys
from gateway.keys.key import Key
from gateway.keys.names import KeyNames
from gateway.keys.store import KeyStore
from tests.gateway.keys.conftest import MadeKey, OpenStore, Shelf, made_key, running

DEADLINE_S = 10.0


def opens(store: KeyStore, key: MadeKey) -> bool:
    return store.ring.verified(key.secret.encode()) is not None


@contextlib.asynccontextmanager
async def watched(open_store: OpenStore, store: KeyStore) -> AsyncIterator[None]:
    async with running(store.watches()):
        yield
    await open_store.close()


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while True:
            if condition():
                return
            await asyncio.sleep(0.02)


def test_a_changed_file_is_taken_over_and_a_broken_one_is_not(open_store: OpenStore, shelf: Shelf) -> None:
    first, second = made_key(), made_key()
    shelf.holds(first)
    store = open_store(shelf.path)

    async def work() -> None:
        async with watched(open_store, store):
            assert (opens(store, first), opens(store, second)) == (True, False)
            shelf.holds(first, second)
            await until(lambda: opens(store, second))
            shelf.path.write_text(shelf.path.read_text()[:-40])  # half-written
            await until(lambda: store.status().file_error)
            assert opens(store, first)
            assert opens(store, second)
            shelf.holds(second)
            await until(lambda: not opens(store, first))
            assert store.status().file_error == ""

    asyncio.run(work())


def test_a_swapped_link_is_noticed(open_store: OpenStore, tmp_path: Path) -> None:
    one, other = made_key(), made_key()
    folder = tmp_path / "mounted"
    folder.mkdir()
    for name, key in (("one.yaml", one), ("other.yaml", other)):
        Shelf(tmp_path / name).holds(key)
    (folder / "keys.yaml").symlink_to(tmp_path / "one.yaml")
    store = open_store(folder / "keys.yaml")

    async def work() -> None:
        async with watched(open_store, store):
            fresh = folder / "fresh"
            fresh.symlink_to(tmp_path / "other.yaml")
            fresh.replace(folder / "keys.yaml")
            await until(lambda: opens(store, other))
            assert not opens(store, one)

    asyncio.run(work())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"scopes": ["everything"]}, "scopes"),
        ({"sha256": "hunter22"}, "sha256"),
        ({"may_do": "all"}, "may_do"),
        ({"expires_at": "2027-01-31 10:00:00"}, "expires_at"),  # in which zone?
        ({"limits": {"requests_per_minute": 0}}, "requests_per_minute"),
    ],
)
def test_a_file_that_cannot_be_used_does_not_start_and_shows_no_hash(
    open_store: OpenStore, shelf: Shelf, changes: dict[str, Any], said: str
) -> None:
    key = made_key(**changes)
    shelf.holds(made_key(), key)
    with pytest.raises(ConfigError) as refused:
        open_store(shelf.path)
    assert said in refused.value.message
    assert refused.value.file == str(shelf.path)
    assert refused.value.line is not None
    assert key.entry["sha256"] not in str(refused.value)


def test_two_keys_of_one_id_and_a_missing_file_are_refused(open_store: OpenStore, shelf: Shelf) -> None:
    key = made_key()
    shelf.holds(key, key)
    with pytest.raises(ConfigError, match="same id"):
        open_store(shelf.path)
    with pytest.raises(ConfigError, match="cannot be read"):
        open_store(shelf.path.with_name("none.yaml"))


def put(valkey_url: str, namespace: str, key: MadeKey) -> None:
    with Redis.from_url(valkey_url) as redis:
        FleetKeys(redis, KeyNames(namespace)).change(key.id, lambda before: Key.model_validate(key.entry))


def test_the_fleets_keys_come_with_the_bell_and_stay_when_redis_loses_them(
    open_store: OpenStore, valkey_url: str, namespace: str
) -> None:
    key, store = made_key(), open_store()

    async def work() -> None:
        async with watched(open_store, store):
            assert not store.is_configured
            put(valkey_url, namespace, key)
            await until(lambda: opens(store, key))
            assert store.is_configured
            with Redis.from_url(valkey_url) as redis:
                redis.delete(KeyNames(namespace).keys)
            await until(lambda: store.status().fleet_error)
            assert opens(store, key)

    asyncio.run(work())


def test_a_gateway_that_starts_without_redis_has_the_keys_that_it_had_last(
    open_store: OpenStore, valkey_url: str, namespace: str, tmp_path: Path, free_port: Callable[[], int]
) -> None:
    key = made_key()
    put(valkey_url, namespace, key)
    asyncio.run(open_store.reloaded(open_store()))
    away = open_store(url=f"redis://127.0.0.1:{free_port()}/0")
    asyncio.run(open_store.reloaded(away))
    assert away.is_configured
    assert opens(away, key)
    assert "does not answer" in away.status().fleet_error
    assert key.secret not in (tmp_path / "copy.json").read_text()
    assert (tmp_path / "copy.json").stat().st_mode & 0o777 == 0o600


def test_an_entry_that_cannot_be_read_opens_nothing_and_takes_no_other_with_it(
    open_store: OpenStore, valkey_url: str, namespace: str
) -> None:
    good, newer = made_key(), made_key()
    put(valkey_url, namespace, good)
    with Redis.from_url(valkey_url) as redis:
        # A field of a later version may narrow what the key opens.
        redis.hset(KeyNames(namespace).keys, newer.id, json.dumps(newer.entry | {"only_from": "10.0.0.0/8"}))
    store = open_store()
    asyncio.run(open_store.reloaded(store))
    assert (opens(store, good), opens(store, newer)) == (True, False)
    with Redis.from_url(valkey_url) as redis, pytest.raises(ConfigError, match="another version"):
        FleetKeys(redis, KeyNames(namespace)).change(newer.id, lambda before: Key.model_validate(newer.entry))
