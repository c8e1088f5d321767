"""Pages of other origins: closed by default, open to those that are named."""

from __future__ import annotations

import httpx
import pytest
from pydantic import ValidationError

from gateway.settings import GatewaySettings
from tests.servers.gateway import CHAT, Scripted, StartGateway
from tests.servers.upstream import Upstream

ASKED = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
APP, OTHER = "https://app.example", "https://evil.example"


def preflight(url: str, origin: str) -> httpx.Response:
    return httpx.options(url, headers={"Origin": origin, **ASKED})


def test_by_default_no_page_is_allowed_anything(scripted: Scripted) -> None:
    for path in (CHAT, "/v1/models", "/admin/turns"):
        answer = preflight(scripted.gateway.url + path, APP)
        assert answer.status_code == 405
        assert not [name for name in answer.headers if name.startswith("access-control")]
    answer = scripted.client.get("/v1/models", headers={"Origin": APP})
    assert "access-control-allow-origin" not in answer.headers


def test_a_named_origin_may_call_v1_and_no_other_may(upstream: Upstream, start_gateway: StartGateway) -> None:
    gateway = start_gateway(upstream.url, cors_origins=f"{APP},http://localhost:3000")
    allowed = preflight(gateway.url + CHAT, APP)
    assert (allowed.status_code, allowed.headers["access-control-allow-origin"]) == (200, APP)
    assert "access-control-allow-credentials" not in allowed.headers
    assert "access-control-allow-origin" not in preflight(gateway.url + CHAT, OTHER).headers
    assert "access-control-allow-origin" not in preflight(gateway.url + "/admin/turns", APP).headers
    answer = httpx.get(gateway.url + "/v1/models", headers={"Origin": APP})
    assert answer.headers["access-control-allow-origin"] == APP
    assert (
        "access-control-allow-origin"
        not in httpx.get(gateway.url + "/v1/models", headers={"Origin": OTHER}).headers
    )


@pytest.mark.parametrize(
    "origins", ["*", "app.example", "https://app.example/path", "null", "https://*.example?"]
)
def test_what_is_no_origin_is_refused(origins: str) -> None:
    with pytest.raises(ValidationError):
        GatewaySettings(cors_origins=origins)
