"""Who may use /admin and choose a lane, over real connections."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.servers.gateway import CHAT, PLAIN, Gateway, Scripted, StartGateway
from tests.servers.upstream import Script, Upstream, whole

KEY = "an-admin-key-of-32-characters-xx"
BEARER = {"Authorization": f"Bearer {KEY}"}


@pytest.fixture
def keyed(upstream: Upstream, start_gateway: StartGateway) -> Gateway:
    """A gateway with an admin key."""
    upstream.plays(Script([whole("ok")], content_type="application/json"))
    return start_gateway(upstream.url, admin_key=KEY)


def ask(gateway: Gateway, lane: str, **headers: str) -> httpx.Response:
    return httpx.post(gateway.url + CHAT, json=PLAIN[CHAT], headers={"X-Gravity-Lane": lane, **headers})


def test_without_a_key_admin_is_for_this_machine(scripted: Scripted) -> None:
    assert scripted.client.get("/admin/turns/none").status_code == 404
    foreign = scripted.client.get("/admin/turns/none", headers={"Host": "evil.example"})
    assert foreign.status_code == 403
    proxied = scripted.client.get("/admin/turns/none", headers={"X-Forwarded-For": "203.0.113.9"})
    assert proxied.status_code == 403


def test_with_a_key_admin_is_for_its_holder_alone(keyed: Gateway) -> None:
    assert httpx.get(keyed.url + "/admin/turns/none", headers=BEARER).status_code == 404
    answers = [
        httpx.get(keyed.url + "/admin/turns/none", headers=headers)
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {KEY}"})
    ]
    assert [answer.status_code for answer in answers] == [401] * 3
    assert len({answer.content for answer in answers}) == 1
    assert answers[0].headers["content-type"] == "application/problem+json"
    problem = answers[0].json()
    assert (problem["status"], problem["title"]) == (401, "Unauthorized")


def test_litellm_39757_a_wrong_key_is_never_shown(keyed: Gateway) -> None:
    answer = httpx.get(
        keyed.url + "/admin/turns/none", headers={"Authorization": "Bearer sk-mine-0123456789"}
    )
    assert "sk-mine" not in answer.text


def test_without_a_key_whoever_is_on_this_machine_may_choose_a_lane(scripted: Scripted) -> None:
    scripted.upstream.plays(Script([whole("ok")], content_type="application/json"))
    answer = ask(scripted.gateway, "control")
    assert answer.json()["gravity"]["lane"] == "control"
    assert answer.json()["gravity"]["lane_reason"] == "override"
    foreign = ask(scripted.gateway, "control", Host="evil.example")
    assert foreign.status_code == 403
    assert foreign.json()["error"]["code"] == "insufficient_scope"


def test_with_a_key_its_holder_may_choose_a_lane(keyed: Gateway) -> None:
    assert ask(keyed, "control").status_code == 403
    assert ask(keyed, "control", **BEARER).json()["gravity"]["lane"] == "control"


@pytest.mark.parametrize(("setting", "status"), [("anyone", 200), ("admin", 403)])
def test_the_setting_opens_or_closes_the_choice(
    upstream: Upstream, start_gateway: StartGateway, setting: Any, status: int
) -> None:
    upstream.plays(Script([whole("ok")], content_type="application/json"))
    gateway = start_gateway(upstream.url, lane_override=setting, keyless="anyone")
    assert ask(gateway, "control", Host="anywhere.example").status_code == status


def test_an_unknown_lane_is_a_400(scripted: Scripted) -> None:
    answer = ask(scripted.gateway, "sideways")
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "X-Gravity-Lane"
