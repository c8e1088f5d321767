"""``/admin/turns`` of a real gateway over a real Valkey."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from redis import Redis

from tests.servers.gateway import CHAT, Scripted, StartGateway
from tests.servers.upstream import Script, whole

WaitUntil = Callable[..., Any]


@pytest.fixture
def user() -> str:
    return f"user-{uuid.uuid4().hex}"


@pytest.fixture
def ask(scripted: Scripted, user: str, wait_until: WaitUntil) -> Callable[..., str]:
    """Send a turn of the user and return its id once it is listed."""
    scripted.upstream.plays(Script([whole("ok")], content_type="application/json"))

    def send(**body: Any) -> str:
        turn_id = scripted.post(CHAT, user=user, **body).headers["x-gravity-turn-id"]
        wait_until(lambda: turn_id in listed(scripted, user=user))
        return turn_id

    return send


def listed(scripted: Scripted, **query: Any) -> list[str]:
    answer = scripted.client.get("/admin/turns", params=query)
    assert answer.status_code == 200, answer.text
    return [turn["id"] for turn in answer.json()["turns"]]


def test_turns_are_listed_by_what_is_asked_for(
    scripted: Scripted, ask: Callable[..., str], user: str
) -> None:
    first, second = ask(), ask(task="open_writing")
    assert listed(scripted, user=user) == [second, first]
    assert listed(scripted, user=user, task="open_writing") == [second]
    assert listed(scripted, user=user, limit=1) == [second]
    assert listed(scripted, user=user, since="1h", status="ok") == [second, first]
    assert listed(scripted, user=user, until="1h") == []
    sha = scripted.gateway.deps.config.snapshot.sha
    assert listed(scripted, user=user, config=sha[:7]) == [second, first]
    assert listed(scripted, user=user, config="0" * 64) == []


def test_an_entry_names_its_user_by_a_hash(scripted: Scripted, ask: Callable[..., str], user: str) -> None:
    ask()
    answer = scripted.client.get("/admin/turns", params={"user": user})
    [turn] = answer.json()["turns"]
    assert turn["user"].startswith("blake2b:")
    assert user not in answer.text


@pytest.mark.parametrize(
    ("query", "param"),
    [({"since": "yesterday"}, "since"), ({"limit": "0"}, "limit"), ({"color": "red"}, "color")],
)
def test_a_query_that_is_wrong_is_a_problem(scripted: Scripted, query: dict[str, str], param: str) -> None:
    answer = scripted.client.get("/admin/turns", params=query)
    assert answer.status_code == 400
    assert answer.headers["content-type"] == "application/problem+json"
    assert param in answer.text


def test_a_turn_is_deleted_once(
    scripted: Scripted, ask: Callable[..., str], user: str, valkey_url: str
) -> None:
    gone, stays = ask(), ask()
    answer = scripted.client.delete(f"/admin/turns/{gone}")
    assert answer.status_code == 200
    assert (answer.json()["turns"], answer.json()["records"]) == (1, 1)
    assert scripted.client.get(f"/admin/turns/{gone}").status_code == 404
    assert scripted.client.delete(f"/admin/turns/{gone}").status_code == 404
    assert listed(scripted, user=user) == [stays]
    with Redis.from_url(valkey_url) as redis:
        assert not redis.exists(f"ng:turn:{gone}")
        assert redis.exists(f"ng:turn:{stays}")


def test_a_users_turns_are_deleted_and_nobody_elses(
    scripted: Scripted, ask: Callable[..., str], user: str
) -> None:
    ids = [ask(), ask()]
    longer = scripted.client.delete("/admin/turns", params={"user": user + "-other"})
    assert set(longer.json().values()) == {0}
    answer = scripted.client.delete("/admin/turns", params={"user": user})
    assert answer.status_code == 200
    assert answer.json()["turns"] == len(ids)
    assert listed(scripted, user=user) == []


def test_whose_turns_are_deleted_has_to_be_said(scripted: Scripted) -> None:
    assert scripted.client.delete("/admin/turns").status_code == 400
    assert scripted.client.delete("/admin/turns", params={"user": ""}).status_code == 400


def test_who_may_only_read_deletes_nothing(start_gateway: StartGateway, user: str) -> None:
    gateway = start_gateway(read_key="reader-key-0123456789", wait=False)
    headers = {"Authorization": "Bearer reader-key-0123456789"}
    assert httpx.get(f"{gateway.url}/admin/turns", headers=headers).status_code == 200
    refused = httpx.delete(f"{gateway.url}/admin/turns", params={"user": user}, headers=headers)
    assert refused.status_code == 403
    assert httpx.get(f"{gateway.url}/admin/turns").status_code == 401
