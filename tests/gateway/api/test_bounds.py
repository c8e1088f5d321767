"""How much one request may hold; one over is a 400 that names the field."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.servers.gateway import CHAT, PLAIN, Gateway, StartGateway
from tests.servers.upstream import Script, Upstream, whole

MESSAGE = {"role": "user", "content": "hello"}


@pytest.fixture
def bounded(upstream: Upstream, start_gateway: StartGateway) -> Gateway:
    upstream.plays(Script([whole("ok")], content_type="application/json"))
    return start_gateway(upstream.url, max_messages=2, max_documents=3, max_document_chars=10)


def test_at_the_bound_a_turn_is_served_and_one_over_it_is_named(bounded: Gateway, upstream: Upstream) -> None:
    fits: dict[str, Any] = {"messages": [MESSAGE] * 2, "documents": ["x" * 10, {"text": "y"}, "z"]}
    over: list[tuple[dict[str, Any], str]] = [
        ({"messages": [MESSAGE] * 3}, "messages"),
        ({"documents": ["a"] * 4}, "documents"),
        ({"documents": ["a", {"data": {"text": "x" * 11}}]}, "documents[1]"),
    ]
    with httpx.Client(base_url=bounded.url, timeout=30.0) as client:
        assert client.post(CHAT, json=PLAIN[CHAT] | fits).status_code == 200
        for change, param in over:
            answer = client.post(CHAT, json=PLAIN[CHAT] | fits | change)
            assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
        assert len(upstream.received) == 1
        for path, body in (("/v1/prune", {"query": "q"}), ("/v1/rerank", {"query": "q"})):
            answer = client.post(path, json={**body, "documents": ["x" * 11]})
            assert (answer.status_code, answer.json()["error"]["param"]) == (400, "documents[0]")


def test_a_body_may_have_so_many_levels_and_no_more(upstream: Upstream, start_gateway: StartGateway) -> None:
    upstream.plays(Script([whole("ok")], content_type="application/json"))
    gateway = start_gateway(upstream.url, max_nesting=5)
    for extra, status in (([[[[1]]]], 200), ([[[[[1]]]]], 400)):  # the body is the first level
        answer = httpx.post(gateway.url + CHAT, json=PLAIN[CHAT] | {"extra": extra})
        assert answer.status_code == status
    assert answer.json()["error"]["code"] == "invalid_json"
