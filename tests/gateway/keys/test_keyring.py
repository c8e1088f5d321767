"""Whether what is sent is a key: the same work for every answer, and the answers themselves."""

from __future__ import annotations

import hmac
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gateway.keys.key import Key
from gateway.keys.keyring import Keyring
from gateway.keys.secret import id_of, new_id, new_secret
from tests.gateway.keys.conftest import MadeKey, made_key
from tests.servers.keys import sha256_of

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


class Counting:
    """Compares as ``hmac`` does and remembers how often."""

    def __init__(self) -> None:
        self.num_calls = 0

    def __call__(self, one: str, other: str) -> bool:
        self.num_calls += 1
        return hmac.compare_digest(one, other)


def ring_of(*keys: MadeKey, compare: Any = hmac.compare_digest) -> Keyring:
    parsed = [Key.model_validate(key.entry) for key in keys]
    return Keyring({key.id: key for key in parsed}, NOW.timestamp, compare)


def test_a_key_is_found_by_its_id_and_known_by_its_hash() -> None:
    one, other = made_key(), made_key()
    found = ring_of(one, other).verified(other.secret.encode())
    assert found is not None
    assert found.id == other.id


BAD = {
    "missing": lambda key: "",
    "malformed": lambda key: "sk-0123456789",
    "unknown": lambda key: made_key().secret,
    "wrong": lambda key: key.secret[:-1] + ("0" if key.secret[-1] != "0" else "1"),
    "cut": lambda key: key.secret[:-1],
    "the hash": lambda key: key.entry["sha256"],
    "the hash as a secret": lambda key: f"ng_{key.id}_{key.entry['sha256']}",
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD.keys())
def test_whatever_is_wrong_is_compared_as_often_as_what_is_right(bad: Any) -> None:
    key, compare = made_key(), Counting()
    ring = ring_of(key, compare=compare)
    assert ring.verified(key.secret.encode()) is not None
    num_good = compare.num_calls
    assert num_good >= 1
    assert ring.verified(bad(key).encode()) is None
    assert compare.num_calls == 2 * num_good


@pytest.mark.parametrize(
    "fields",
    [
        {"expires_at": NOW},
        {"expires_at": NOW - timedelta(days=1)},
        {"revoked_at": NOW - timedelta(days=1)},
        {"revoked_at": NOW + timedelta(days=1)},  # whenever: it is revoked
    ],
)
def test_an_expired_or_revoked_key_is_compared_and_opens_nothing(fields: dict[str, Any]) -> None:
    key, compare = made_key(**fields), Counting()
    assert ring_of(key, compare=compare).verified(key.secret.encode()) is None
    assert compare.num_calls == 2


def test_a_key_expires_without_a_reload() -> None:
    key = made_key(expires_at=NOW + timedelta(seconds=1))
    moment = [NOW.timestamp()]
    ring = Keyring({key.id: Key.model_validate(key.entry)}, lambda: moment[0])
    assert ring.verified(key.secret.encode()) is not None
    moment[0] += 1.0
    assert ring.verified(key.secret.encode()) is None


def test_a_replaced_secret_opens_until_its_time_is_over() -> None:
    key = made_key()
    before = f"ng_{key.id}_{'a' * 64}"
    for left, is_good in ((timedelta(seconds=1), True), (timedelta(0), False)):
        replaced = {"sha256": sha256_of(before), "expires_at": NOW + left}
        ring = ring_of(MadeKey(key.id, key.secret, key.entry | {"replaced": replaced}))
        assert (ring.verified(before.encode()) is not None) == is_good
        assert ring.verified(key.secret.encode()) is not None


def test_a_new_key_has_an_id_to_find_it_by_and_256_bits() -> None:
    asked: list[int] = []

    def random_hex(num_bytes: int) -> str:
        asked.append(num_bytes)
        return "5a" * num_bytes

    key_id = new_id(random_hex)
    secret = new_secret(key_id, random_hex)
    assert secret == f"ng_{'5a' * 6}_{'5a' * 32}"
    assert asked[-1] * 8 == 256
    assert id_of(secret.encode()) == key_id


def test_a_key_does_not_show_its_hash() -> None:
    key = made_key()
    assert key.entry["sha256"] not in repr(Key.model_validate(key.entry))
