"""Clients that stop reading, and clients that are merely slow."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import orjson
import psutil  # type: ignore[import-untyped]
import pytest

from tests.servers.gateway import CHAT, PLAIN, Gateway, StartGateway
from tests.servers.upstream import Script, Upstream, chunk, events, whole

if TYPE_CHECKING:
    from tests.conftest import WaitUntil

NUM_CLIENTS = 50
MIB = 2**20
TEXT = "x" * 30_000
PIECE = events(chunk(TEXT), done=False)
RECEIVE_BYTES = 8 * 1024


@contextlib.contextmanager
def asked(gateway: Gateway, **body: Any) -> Iterator[socket.socket]:
    """Send a request on a connection whose kernel takes little before it is read."""
    address = urlsplit(gateway.url)
    content = orjson.dumps(PLAIN[CHAT] | body)
    head = f"POST {CHAT} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(content)}\r\n\r\n"
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
        client.connect((address.hostname, address.port))
        client.sendall(head.encode() + content)
        yield client


@pytest.fixture
def impatient(start_gateway: StartGateway, upstream: Upstream) -> Gateway:
    return start_gateway(upstream.url, write_timeout_s=0.6)


def test_fifty_clients_that_stop_reading_cost_little_memory_and_their_turns_end(
    impatient: Gateway, upstream: Upstream, wait_until: WaitUntil
) -> None:
    upstream.plays(Script([PIECE] * 1_000))  # 30 MB for each, if anybody held it
    own = psutil.Process()
    before = own.memory_info().rss
    with contextlib.ExitStack() as clients:
        for _ in range(NUM_CLIENTS):
            clients.enter_context(asked(impatient, stream=True))
        wait_until(lambda: len(upstream.received) == NUM_CLIENTS, timeout_s=30.0)
        highest = max(_until_all_left(upstream, wait_until, own))
        wait_until(lambda: impatient.deps.drain.num_open == 0)
        assert impatient.deps.pool.workers[0].num_in_flight == 0
    assert highest - before < 150 * MIB  # of 1,500


def _until_all_left(upstream: Upstream, wait_until: WaitUntil, own: Any) -> list[int]:
    seen: list[int] = []

    def all_left() -> bool:
        seen.append(own.memory_info().rss)
        return upstream.num_left == NUM_CLIENTS and upstream.num_open == 0

    wait_until(all_left, timeout_s=60.0)
    return seen


@pytest.mark.parametrize("is_streaming", [True, False])
def test_a_client_that_is_merely_slow_is_served_to_its_end(
    impatient: Gateway, upstream: Upstream, is_streaming: bool
) -> None:
    content = TEXT * 30
    if is_streaming:
        upstream.plays(Script([PIECE] * 30 + [events(chunk(finish="stop"))]))
    else:
        upstream.plays(Script([whole(content)], content_type="application/json"))
    received = bytearray()
    started = time.monotonic()
    with asked(impatient, stream=is_streaming) as client:
        client.settimeout(30.0)
        while not received.endswith((b"0\r\n\r\n", b"}")) or received.count(b"x") < len(content):
            received += client.recv(24 * 1024)
            time.sleep(0.02)  # what makes it slow
    assert time.monotonic() - started > 0.6, "it was not slower than the timeout"
    assert received.count(b"x") >= len(content)
    assert b'"finish_reason":"stop"' in received


def test_an_answer_that_was_sent_whole_and_is_never_read_holds_no_connection(
    impatient: Gateway, upstream: Upstream, wait_until: WaitUntil
) -> None:
    upstream.plays(Script([whole(TEXT * 100)], content_type="application/json"))
    port = urlsplit(impatient.url).port

    def num_connections() -> int:
        found = psutil.Process().net_connections(kind="tcp")
        return sum(c.status == "ESTABLISHED" and bool(c.laddr) and c.laddr.port == port for c in found)

    with asked(impatient):
        wait_until(lambda: num_connections() == 1 and impatient.deps.drain.num_open == 0)
        wait_until(lambda: num_connections() == 0)
