"""How a run judges what its clients were given, before a server that plays the gateway."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Iterator

import httpx
import pytest

from gateway.chaos.client import Kind, ask
from gateway.chaos.endings import Ending
from gateway.chaos.place import Away, Place
from gateway.stack.child import Command
from gateway.stack.leash import Leash
from tests.servers.upstream import Die, Script, StartUpstream, Upstream, chunk, events, whole

JSON = "application/json"
ERROR = {"error": {"message": "No.", "type": "server_error", "param": None, "code": "upstream_error"}}
NAMELESS = {"error": {"message": "No.", "type": "server_error", "param": None}}
OK = events(chunk("ok"), chunk(finish="stop"))


@pytest.fixture
def leash() -> Iterator[Leash]:
    with Leash() as leash:
        yield leash


def ending(upstream: Upstream, leash: Leash, kind: Kind, *away: Away) -> Ending:
    place = Place(Command("gateway-1", ()), leash, upstream.port, away=list(away))

    async def asked() -> Ending:
        async with httpx.AsyncClient(timeout=None) as client:
            return await ask(client, place, kind, random.Random(1))

    return asyncio.run(asked())


@pytest.mark.parametrize(
    ("script", "end", "detail"),
    [
        (Script([OK]), "answered", ""),
        (Script([events(chunk("some"), ERROR)]), "error event", "upstream_error"),
        (Script([events(chunk("some"), ERROR, done=False)]), "wrong", "the stream broke off"),
        (Script([events(chunk("some"), done=False)]), "wrong", "the stream broke off"),
        (Script([events(chunk("some"), NAMELESS)]), "wrong", "what came is no answer: KeyError('code')"),
        (Script([events(b"{")]), "wrong", "what came is no answer: JSONDecodeError"),
        (Script([events(chunk("some"), done=False), Die()]), "wrong", ""),
        (Script([b"{}"], status=503, content_type=JSON), "wrong", "503 None"),
        (Script([b"busy"], status=503), "wrong", "what came is no answer: JSONDecodeError"),
        (Script([b'{"error":{"code":"queue_full"}}'], status=429), "refused", "429 queue_full"),
        (Script([b'{"error":{"code":"internal_error"}}'], status=500), "wrong", "500 internal_error"),
    ],
)
def test_a_stream_ends_as_it_may_or_is_wrong(
    start_upstream: StartUpstream, leash: Leash, script: Script, end: str, detail: str
) -> None:
    upstream = start_upstream()
    upstream.plays(script)
    found = ending(upstream, leash, "stream")
    assert (found.end, found.detail[: len(detail)]) == (end, detail)


def test_only_a_gateway_that_was_killed_may_cut_a_turn_off(
    start_upstream: StartUpstream, leash: Leash
) -> None:
    upstream = start_upstream()
    upstream.plays(Script(dies_at_once=True))
    forever = (0.0, float("inf"))
    assert ending(upstream, leash, "stream").end == "wrong"
    assert ending(upstream, leash, "stream", Away(*forever, was_killed=False)).end == "wrong"
    assert ending(upstream, leash, "stream", Away(*forever, was_killed=True)).end == "cut off"


def test_an_over_long_prompt_that_is_answered_is_wrong(start_upstream: StartUpstream, leash: Leash) -> None:
    upstream = start_upstream()
    upstream.plays(Script([whole("ok")], content_type=JSON))
    assert ending(upstream, leash, "whole").end == "answered"
    assert ending(upstream, leash, "too long").end == "wrong"


def test_an_answer_without_usage_is_none(start_upstream: StartUpstream, leash: Leash) -> None:
    upstream = start_upstream()
    upstream.plays(Script([whole("ok").replace(b'"usage"', b'"usages"')], content_type=JSON))
    found = ending(upstream, leash, "whole")
    assert (found.end, found.detail) == ("wrong", "what came is no answer: KeyError('usage')")


def test_a_process_that_died_is_remembered_when_another_is_in_its_place(leash: Leash) -> None:
    last_words = Command("worker-1", (sys.executable, "-c", "print('no memory')"))

    async def died() -> Place:
        place = Place(last_words, leash, 0, tells_ready=False)
        await place.start()
        assert place.child is not None
        await place.child.wait()
        await place.kill()
        await place.start()
        await place.stop()
        place.look()
        return place

    assert asyncio.run(died()).deaths == ["no memory"]
