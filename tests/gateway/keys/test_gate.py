"""Who comes in: keys of the settings, keys of the store, and nobody's."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.errors import AuthenticationFailed, InsufficientScope, RequestError
from gateway.keys.fixed import fixed_keys
from gateway.keys.gate import Gate, Visit
from gateway.keys.scope import Scope
from gateway.keys.store import KeyStore
from gateway.settings import GatewaySettings
from tests.gateway.keys.conftest import OpenStore, Shelf, made_key

KEY = "an-admin-key-of-32-characters-xx"
KEYS = {"admin_key": KEY, "config_key": "a-config-key", "read_key": "a-read-key"}


def visit(scope: Scope, presented: str | None, **more: Any) -> Visit:
    """A request from another machine."""
    fields = {
        "presented": (presented or "").encode(),
        "wanted": frozenset({scope}),
        "is_reading": scope.endswith(":read"),
        "is_admin": scope not in ("infer", "prune", "feedback"),
        "is_local": lambda: False,
    }
    return Visit(**{**fields, **more})


def gate_with(store: KeyStore, keyless: Any = "loopback", **keys: str) -> Gate:
    fields: dict[str, Any] = {"admin_key": None, "config_key": None, "read_key": None, **keys}
    return Gate(store, fixed_keys(GatewaySettings(**fields)), keyless)


@pytest.mark.parametrize(
    ("keys", "held", "scope", "name"),
    [
        (KEYS, KEY, "config:write", "admin key"),
        (KEYS, KEY, "turns:write", "admin key"),
        (KEYS, KEY, "admin", "admin key"),
        (KEYS, KEY, "infer", "admin key"),
        (KEYS, "a-config-key", "config:write", "config key"),
        (KEYS, "a-config-key", "config:read", "config key"),
        (KEYS, "a-config-key", "turns:read", InsufficientScope),
        (KEYS, "a-config-key", "experiments:read", InsufficientScope),
        (KEYS, "a-read-key", "turns:read", "read key"),
        (KEYS, "a-read-key", "config:read", "read key"),
        (KEYS, "a-read-key", "config:write", InsufficientScope),
        (KEYS, "a-read-key", "turns:write", InsufficientScope),
        (KEYS, "another", "config:read", AuthenticationFailed),
        (KEYS, "", "config:read", AuthenticationFailed),
        ({"read_key": "a-read-key"}, None, "config:write", AuthenticationFailed),
        ({"read_key": "a-read-key"}, "a-read-key", "config:write", InsufficientScope),
        ({"config_key": "one", "read_key": "one"}, "one", "turns:read", "read key"),
        ({"admin_key": ""}, "", "config:write", InsufficientScope),  # an empty key is none, and far is far
        ({"admin_key": "clé"}, "clé", "config:write", "admin key"),
    ],
)
def test_each_key_of_the_settings_opens_its_own_part(
    open_store: OpenStore,
    keys: dict[str, str],
    held: str | None,
    scope: Scope,
    name: str | type[RequestError],
) -> None:
    gate = gate_with(open_store(), **keys)
    if isinstance(name, str):
        assert gate.admit(visit(scope, held)).name == name
    else:
        with pytest.raises(name):
            gate.admit(visit(scope, held))


def test_without_any_key_this_machine_may_do_everything_and_no_other_anything(open_store: OpenStore) -> None:
    gate = gate_with(open_store())
    for scope in ("infer", "config:write", "admin"):
        assert gate.admit(visit(scope, "whatever", is_local=lambda: True)).name == "loopback"
        with pytest.raises(InsufficientScope):
            gate.admit(visit(scope, "whatever"))


def test_anyone_is_anyone_on_v1_alone_and_nobody_is_nobody(open_store: OpenStore) -> None:
    anyone, nobody = gate_with(open_store(), "anyone"), gate_with(open_store(), "nobody")
    assert anyone.admit(visit("infer", None)).name == "anyone"
    with pytest.raises(InsufficientScope):
        anyone.admit(visit("turns:read", None))
    with pytest.raises(AuthenticationFailed):
        nobody.admit(visit("infer", None, is_local=lambda: True))


def test_with_one_key_in_the_store_nothing_is_open_any_more(open_store: OpenStore, shelf: Shelf) -> None:
    key = made_key("infer")
    shelf.holds(key)
    gate = gate_with(open_store(shelf.path), "anyone")
    admitted = gate.admit(visit("infer", key.secret))
    assert admitted.key is not None
    assert (admitted.key.id, admitted.is_admin) == (key.id, False)
    with pytest.raises(AuthenticationFailed):
        gate.admit(visit("infer", None, is_local=lambda: True))
    with pytest.raises(InsufficientScope):
        gate.admit(visit("turns:read", key.secret))


def test_a_file_without_keys_is_closed_too(open_store: OpenStore, shelf: Shelf) -> None:
    shelf.holds()
    with pytest.raises(AuthenticationFailed):
        gate_with(open_store(shelf.path)).admit(visit("infer", None, is_local=lambda: True))


def test_a_key_of_scope_admin_opens_everything(open_store: OpenStore, shelf: Shelf) -> None:
    key = made_key("admin")
    shelf.holds(key)
    gate = gate_with(open_store(shelf.path))
    for scope in ("infer", "prune", "turns:write", "config:write", "experiments:read", "admin"):
        assert gate.admit(visit(scope, key.secret)).is_admin


def test_the_keys_of_the_settings_open_beside_those_of_the_store(open_store: OpenStore, shelf: Shelf) -> None:
    shelf.holds(made_key("infer"))
    gate = gate_with(open_store(shelf.path), admin_key=KEY)
    assert gate.admit(visit("config:write", KEY)).is_admin
