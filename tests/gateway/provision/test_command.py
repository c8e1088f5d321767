"""``gravity key …`` in this process, on a file and on a namespace in a real Valkey."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from redis import Redis

from gateway.cli import app
from gateway.errors import CommandError
from tests.servers.keys import sha256_of


@dataclass(frozen=True, slots=True)
class Ran:
    status: int
    printed: str

    def json(self) -> Any:
        return json.loads(self.printed)


@dataclass(frozen=True, slots=True)
class Keys:
    """``gravity key … --json`` on one place, and what that place holds."""

    run: Callable[..., Ran]
    stored: Callable[[], list[dict[str, Any]]]

    def create(self, *arguments: str) -> Any:
        return self.run("create", *arguments, "--json").json()


@pytest.fixture(params=["file", "fleet"])
def keys(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    valkey_url: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Keys:
    for name in ("NG_CONFIG_NAMESPACE", "NG_REDIS_URL", "NG_KEYS_FILE"):
        monkeypatch.delenv(name, raising=False)
    path, namespace = tmp_path / "keys.yaml", f"test-{uuid.uuid4().hex}"
    is_file = request.param == "file"
    place = ["--file", str(path)] if is_file else ["--redis", valkey_url, "--namespace", namespace]

    def run(*arguments: str) -> Ran:
        capsys.readouterr()
        try:
            status = typer.main.get_command(app)(["key", *arguments, *place], standalone_mode=False)
        except CommandError as error:
            print(error)
            status = 2
        return Ran(status, capsys.readouterr().out)

    def stored() -> list[dict[str, Any]]:
        if is_file:
            listed: list[dict[str, Any]] = yaml.safe_load(path.read_text())["keys"]
            return listed
        with Redis.from_url(valkey_url) as redis:
            return [json.loads(each) for each in redis.hvals(f"ng:{{keys:{namespace}}}:keys")]

    return Keys(run, stored)


def test_a_secret_is_shown_once_and_kept_as_its_hash(keys: Keys) -> None:
    made = keys.create("search page", "--scope", "infer", "--scope", "feedback")
    assert made["secret"].startswith(f"ng_{made['id']}_")
    assert len(made["secret"].rpartition("_")[2]) == 64
    (entry,) = keys.stored()
    assert entry["sha256"] == sha256_of(made["secret"])
    secret = made["secret"].rpartition("_")[2]
    for command in (["list"], ["list", "--json"], ["show", made["id"]], ["show", made["id"], "--json"]):
        told = keys.run(*command)
        assert told.status == 0
        assert "search page" in told.printed
        assert secret not in told.printed
        assert entry["sha256"] not in told.printed
    assert secret not in json.dumps(keys.stored())


def test_what_a_key_is_made_with_is_kept(keys: Keys) -> None:
    made = keys.create(
        *("batch", "--scope", "infer", "--task", "rag_qa", "--model", "small", "--priority", "-5"),
        *("--expires", "90d", "--requests-per-minute", "60", "--tokens-per-minute", "9000"),
        *("--concurrent-turns", "2"),
    )
    shown = keys.run("show", made["id"], "--json").json()
    assert shown["limits"] == {
        "requests_per_minute": 60,
        "tokens_per_minute": 9000,
        "concurrent_turns": 2,
    }
    assert (shown["tasks"], shown["models"], shown["priority"]) == (["rag_qa"], ["small"], -5)
    left = datetime.fromisoformat(shown["expires_at"]) - datetime.now(UTC)
    assert timedelta(days=89, hours=23) < left <= timedelta(days=90)


def test_rotating_keeps_the_secret_before_for_its_grace(keys: Keys) -> None:
    made = keys.create("app", "--scope", "infer")
    rotated = keys.run("rotate", made["id"], "--grace", "2h", "--json").json()
    assert rotated["id"] == made["id"]
    assert rotated["secret"] != made["secret"]
    (entry,) = keys.stored()
    assert entry["sha256"] == sha256_of(rotated["secret"])
    assert entry["replaced"]["sha256"] == sha256_of(made["secret"])
    grace = datetime.fromisoformat(entry["replaced"]["expires_at"]) - datetime.now(UTC)
    assert timedelta(minutes=119) < grace <= timedelta(hours=2)
    assert "sha256" not in json.dumps(rotated)


def test_revoking_is_for_good_and_the_key_stays_listed(keys: Keys) -> None:
    made = keys.create("app", "--scope", "infer")
    assert keys.run("revoke", made["id"]).status == 0
    (first,) = keys.stored()
    assert keys.run("revoke", made["id"]).status == 0
    assert keys.stored() == [first]
    (listed,) = keys.run("list", "--json").json()
    assert listed["state"] == "revoked"
    assert keys.run("rotate", made["id"]).status == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["create", "x", "--scope", "everything"], "scopes.0"),
        (["create", "x", "--scope", "infer", "--expires", "soon"], "is no time"),
        (["create", "", "--scope", "infer"], "name"),
        (["show", "nothere"], "there is no key"),
        (["rotate", "nothere"], "there is no key"),
        (["revoke", "nothere"], "there is no key"),
    ],
)
def test_what_cannot_be_is_said_and_changes_nothing(keys: Keys, arguments: list[str], said: str) -> None:
    keys.create("kept", "--scope", "infer")
    before = keys.stored()
    refused = keys.run(*arguments)
    assert refused.status == 2
    assert said in refused.printed
    assert keys.stored() == before


def test_a_file_of_keys_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "keys.yaml"
    arguments = ["key", "create", "x", "--scope", "infer", "--file", str(path)]
    assert typer.main.get_command(app)(arguments, standalone_mode=False) == 0
    assert path.stat().st_mode & 0o777 == 0o600


def test_without_redis_the_command_says_so(free_port: Callable[[], int]) -> None:
    url = f"redis://127.0.0.1:{free_port()}/0"
    with pytest.raises(CommandError, match="Redis does not answer"):
        typer.main.get_command(app)(["key", "list", "--redis", url], standalone_mode=False)
