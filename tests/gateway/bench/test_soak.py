"""``gravity bench soak``: what it sends, how it judges, and one turn of most kinds at the real product."""

from __future__ import annotations

import asyncio
import json
import math
import random
import socket
import threading
from collections.abc import Sequence
from contextlib import closing, suppress
from urllib.parse import urlsplit

import httpx
import pytest

from gateway.bench.soak import hostile
from gateway.bench.soak.client import ask, shape_problem, take_refusal
from gateway.bench.soak.leaving import PHASES, leave
from gateway.bench.soak.levels import Levels, growth_problems
from gateway.bench.soak.requests import CHAT, MIX, REQUESTS, Expected, Request
from gateway.bench.soak.site import ErrorLines
from gateway.chaos.endings import Answer, Ending
from gateway.chaos.place import Place
from gateway.chaos.site import Site
from gateway.settings import GatewaySettings
from gateway.stack.child import Command
from gateway.stack.leash import Leash
from tests.conftest import ServedStack

GOOD = (
    b'{"error": {"message": "No.", "type": "invalid_request_error", "param": null, "code": "invalid_value"}}'
)


def test_a_seed_asks_the_same_again_and_another_seed_does_not() -> None:
    assert MIX.keys() == REQUESTS.keys()
    for kind, request in REQUESTS.items():
        assert request(random.Random(3)) == request(random.Random(3)), kind
    assert REQUESTS["whole"](random.Random(3)) != REQUESTS["whole"](random.Random(4))


def is_readable(body: bytes) -> bool:
    """Whether it is an object of at most a MiB with finite numbers and text that can be written."""

    def refuse(value: str) -> float:
        raise ValueError(value)

    def number(value: str) -> float:
        return float(value) if math.isfinite(float(value)) else refuse(value)

    try:
        sent = json.loads(body.decode(), parse_constant=refuse, parse_float=number, parse_int=number)
        json.dumps(sent, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return False
    return isinstance(sent, dict) and len(body) <= 1 << 20


def test_no_broken_body_can_be_read_and_all_the_others_can() -> None:
    draw = random.Random(1)
    broken = {name: body for body, name in (hostile.broken(draw) for _ in range(300))}
    assert len(broken) >= 15
    assert [name for name, body in broken.items() if is_readable(body)] == []
    assert all(is_readable(each(draw)[0]) for each in (hostile.junk, hostile.oddity) for _ in range(100))


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (GOOD, ""),
        (b"[]", "no object"),
        (b'{"error": "No."}', "no object"),
        (GOOD[:-1] + b', "detail": 1}', "no object"),
        (GOOD.replace(b'"param": null, ', b""), "fields are message, type, code"),
        (GOOD.replace(b'"No."', b'""'), "message or type"),
        (GOOD.replace(b"null", b"7"), "param or code"),
    ],
)
def test_an_error_has_openais_shape_and_nothing_else(content: bytes, told: str) -> None:
    assert told in shape_problem(content)
    assert bool(told) == bool(shape_problem(content))


@pytest.mark.parametrize(
    ("status", "expected", "end"),
    [
        (400, "refused", "refused"),
        (413, "either", "refused"),
        (429, "answered", "refused"),
        (400, "answered", "wrong"),
        (500, "refused", "wrong"),
        (503, "either", "wrong"),
        (302, "either", "wrong"),
    ],
)
def test_a_refusal_is_the_clients_fault_and_only_where_it_made_one(
    status: int, expected: Expected, end: str
) -> None:
    answer = Answer()
    take_refusal(status, GOOD, Request(CHAT, b"", expected), answer)
    assert answer.end == end


def test_what_a_process_holds_may_grow_a_little_and_not_more() -> None:
    before = {"gateway": Levels(24, 13), "worker": Levels(18, 8)}
    assert growth_problems(before, {"gateway": Levels(32, 17), "worker": Levels(10, 2)}) == []
    assert growth_problems(before, {"gateway": Levels(33, 18), "worker": Levels(18, 8)}) == [
        "gateway had 24 open files and has 33",
        "gateway had 13 threads and has 18",
    ]


def test_lines_that_tell_of_an_error_are_kept_and_others_are_not() -> None:
    errors = ErrorLines()
    for line in (
        '{"event": "a", "level": "info"}',
        '{"event":"b","level":"error"}',
        "Traceback (most recent",
    ):
        errors.take("worker", line)
    assert [line.partition(": ")[2][:12] for line in errors.lines] == ['{"event":"b"', "Traceback (m"]


def test_clients_leave_in_every_phase_and_never_wait_for_the_end() -> None:
    received: list[bytes] = []
    with closing(socket.create_server(("127.0.0.1", 0))) as server:

        def take() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with closing(connection):
                    received.append(connection.recv(1 << 16))
                    with suppress(ConnectionError):
                        connection.sendall(b"HTTP/1.1 200 OK\r\n")

        taking = threading.Thread(target=take, daemon=True)
        taking.start()
        request = Request(CHAT, b"x" * 200)
        port = server.getsockname()[1]
        phases = {asyncio.run(leave(port, request, Hurried(seed))) for seed in range(40)}
        server.shutdown(socket.SHUT_RDWR)
    taking.join(10.0)
    assert phases == set(PHASES)
    lengths = {len(each.partition(b"\r\n\r\n")[2]) for each in received}
    assert lengths <= {0, 100, 200}
    assert any(b"\r\n\r\n" not in each for each in received), "some left in the head"


class Hurried(random.Random):
    """Stays as short as may be."""

    def uniform(self, a: float, b: float) -> float:
        return a


def turns(served: ServedStack, kinds: Sequence[str]) -> list[Ending]:
    with Leash() as leash:
        gateway, worker = (
            Place(Command(name, ()), leash, urlsplit(url).port or 0)
            for name, url in (("gateway", served.gateway_url), ("worker", served.worker_url))
        )
        site = Site(gateway, (worker,), (gateway,), GatewaySettings())

        async def all_of_them() -> list[Ending]:
            async with httpx.AsyncClient(timeout=None) as client:
                return [await ask(client, site, kind, random.Random(7)) for kind in kinds]

        return asyncio.run(all_of_them())


def test_the_product_answers_refuses_or_lets_go(served: ServedStack) -> None:
    kinds = {
        "stream": {"answered"},
        "prompt": {"answered"},
        "hostile": {"refused"},
        "hostile to the worker": {"refused", "answered"},
        "odd": {"refused", "answered"},
        "leaving": {"left"},
    }
    endings = turns(served, tuple(kinds))
    assert [each.kind for each in endings if each.end not in kinds[each.kind]] == [], endings
    assert endings[0].num_tokens
    assert endings[0].turn_id
