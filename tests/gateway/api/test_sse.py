"""Pings: a comment where nothing else is sent, over a real connection."""

from __future__ import annotations

import httpx

from tests.servers.gateway import CHAT, PLAIN, StartGateway, events_of
from tests.servers.upstream import Pause, Script, Upstream, chunk, events


def test_silence_is_filled_with_pings_that_are_comments(
    upstream: Upstream, start_gateway: StartGateway
) -> None:
    rest = events(chunk("later"), chunk(finish="stop"))
    upstream.plays(Script([events(chunk("first"), done=False), Pause(0.7), rest]))
    gateway = start_gateway(upstream.url, ping_interval_s=0.2)
    content = httpx.post(gateway.url + CHAT, json=PLAIN[CHAT] | {"stream": True}).content
    assert 2 <= content.count(b": ping\n\n") <= 4
    contents = [each["choices"][0]["delta"].get("content") for each in events_of(content)[:2]]
    assert contents == ["first", "later"]


def test_before_the_first_event_there_is_no_ping_and_no_status(
    upstream: Upstream, start_gateway: StartGateway
) -> None:
    upstream.plays(Script([Pause(0.5), events({"error": {"message": "boom"}})]))
    gateway = start_gateway(upstream.url, ping_interval_s=0.1)
    response = httpx.post(gateway.url + CHAT, json=PLAIN[CHAT] | {"stream": True})
    assert response.status_code == 502
    assert b"ping" not in response.content
