"""HTTP/1.1 as nobody should write it, byte by byte over real sockets."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.hostile.bodies import FUZZ
from tests.hostile.judge import Attacked, check_error_shape
from tests.raw_http import PATIENCE_S, answers_of, ask, received_on
from tests.servers.gateway import Gateway, serving

HEAD_TIMEOUT_S = 0.4
BODY = json.dumps({"model": "fake-model", "messages": [{"role": "user", "content": "hello"}]}).encode()
HOST = b"Host: localhost\r\n"
POST = b"POST /v1/chat/completions HTTP/1.1\r\n" + HOST
LENGTH = b"Content-Length: %d\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"
SMUGGLED = b"GET /livez HTTP/1.1\r\n" + HOST + b"\r\n"
CHUNK = b"%x\r\n%s\r\n" % (len(BODY), BODY)

MALFORMED = {
    "no HTTP at all": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 40,
    "HTTP/2 from the start": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "an unknown version": b"GET /livez HTTP/9.7\r\n" + HOST + b"\r\n",
    "an unknown method": b"FROB /livez HTTP/1.1\r\n" + HOST + b"\r\n",
    "a space in the path": b"GET /v1/models /x HTTP/1.1\r\n" + HOST + b"\r\n",
    "a null byte in a header": b"GET /livez HTTP/1.1\r\nX: a\x00b\r\n\r\n",
    "a space before the colon": POST + b"Content-Length : 5\r\n\r\nhello",
    "a header without a colon": b"GET /livez HTTP/1.1\r\nnonsense\r\n\r\n",
    "a length that is no number": POST + b"Content-Length: many\r\n\r\n" + BODY,
    "a negative length": POST + b"Content-Length: -1\r\n\r\n" + BODY,
    "a length with a sign": POST + b"Content-Length: +5\r\n\r\nhello",
    "a length beyond 64 bits": POST + b"Content-Length: %d\r\n\r\n" % 10**30 + BODY,
    "two lengths that differ": POST + LENGTH % len(BODY) + b"Content-Length: 0\r\n\r\n" + BODY + SMUGGLED,
    "a list of lengths": POST + b"Content-Length: 5, 6\r\n\r\nhello!",
    "a length and chunks (CL.TE)": POST + LENGTH % 5 + CHUNKED + b"\r\n0\r\n\r\n" + SMUGGLED,
    "chunks and a length (TE.CL)": POST + CHUNKED + LENGTH % 4 + b"\r\n5c\r\n" + SMUGGLED + b"\r\n0\r\n\r\n",
    "chunked not at the end": POST + b"Transfer-Encoding: chunked, identity\r\n\r\n" + CHUNK + b"0\r\n\r\n",
    "a coding that is none": POST + b"Transfer-Encoding: xchunked\r\n\r\n" + CHUNK + b"0\r\n\r\n",
    "a chunk's size that is no number": POST + CHUNKED + b"\r\nzz\r\nhello\r\n0\r\n\r\n",
    "a negative chunk": POST + CHUNKED + b"\r\n-5\r\nhello\r\n0\r\n\r\n",
    "a chunk of 2^70 bytes": POST + CHUNKED + b"\r\n%x\r\nhello" % 2**70,
    "a chunk that is longer than it says": POST + CHUNKED + b"\r\n2\r\nhello\r\n0\r\n\r\n",
    "a broken chunk after a good one": POST + CHUNKED + b"\r\n" + CHUNK + b"Q\r\n" + SMUGGLED,
}


def check_refusal(received: bytes) -> None:
    """One answer at most, a 4xx in OpenAI's shape: nothing that was smuggled in is answered."""
    answers = answers_of(received)
    assert len(answers) <= 1
    for status, body in answers:
        assert 400 <= status < 500
        check_error_shape(httpx.Response(status, headers={"content-type": "application/json"}, content=body))


@pytest.mark.parametrize("kind", MALFORMED)
def test_what_is_no_http_is_refused_in_the_shape_of_any_error(attacked: Attacked, kind: str) -> None:
    received = ask(attacked.gateway.url, MALFORMED[kind])
    assert received, kind
    check_refusal(received)
    assert attacked.client.get("/livez").status_code == 200


def test_a_body_that_ends_too_soon_is_nobodys_fault(attacked: Attacked) -> None:
    received = ask(attacked.gateway.url, POST + LENGTH % (len(BODY) + 9) + b"\r\n" + BODY, is_closed=True)
    check_refusal(received)
    assert attacked.client.get("/livez").status_code == 200


def test_a_body_that_is_longer_than_it_says_is_cut_there(attacked: Attacked) -> None:
    received = ask(attacked.gateway.url, POST + LENGTH % (len(BODY) - 1) + b"\r\n" + BODY + b"\r\n\r\n")
    check_refusal(received)


def test_a_malformed_request_under_admin_is_a_problem(attacked: Attacked) -> None:
    received = ask(attacked.gateway.url, b"GET /admin/turns HTTP/1.1\r\nContent-Length: x\r\n\r\n")
    head, _, body = received.partition(b"\r\n\r\n")
    assert b"application/problem+json" in head
    assert json.loads(body)["status"] == 400


def test_two_requests_in_one_packet_are_answered_in_their_order(attacked: Attacked) -> None:
    last = SMUGGLED.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    received = ask(attacked.gateway.url, POST + LENGTH % len(BODY) + b"\r\n" + BODY + last)
    (first, body), (second, alive) = answers_of(received)
    assert (first, second) == (200, 200)
    assert json.loads(body)["choices"]
    assert "choices" not in json.loads(alive)


def test_an_upgrade_that_nobody_knows_is_answered(attacked: Attacked) -> None:
    for protocol in (b"websocket", b"h2c", b"made-up"):
        upgrade = b"Connection: Upgrade, close\r\nUpgrade: %s\r\nSec-WebSocket-Key: x\r\n" % protocol
        (answer,) = answers_of(
            ask(attacked.gateway.url, b"GET /livez HTTP/1.1\r\n" + HOST + upgrade + b"\r\n")
        )
        assert answer[0] == 200


@settings(FUZZ, max_examples=50)
@given(
    st.lists(
        st.sampled_from(
            (
                *(POST, HOST, CHUNKED, CHUNK, BODY, SMUGGLED, LENGTH % 3, LENGTH % len(BODY)),
                *(
                    b"\r\n",
                    b"\n",
                    b"\r",
                    b"\x00",
                    b" ",
                    b":",
                    b"0\r\n\r\n",
                    b"ff;a=b\r\n",
                    b"Expect: 100-continue\r\n",
                ),
                *(
                    b"GET http://elsewhere/livez HTTP/1.1\r\n",
                    b"OPTIONS * HTTP/1.1\r\n",
                    b"GET / HTTP/1.0\r\n",
                ),
            )
        ),
        min_size=1,
        max_size=9,
    ).map(b"".join)
)
def test_no_bytes_bring_a_fault_or_a_hang(attacked: Attacked, sent: bytes) -> None:
    received = ask(attacked.gateway.url, sent, is_closed=True)
    statuses = [int(line.split()[1]) for line in received.split(b"\r\n") if line.startswith(b"HTTP/1.1 ")]
    assert all(status < 500 for status in statuses), received


@pytest.fixture(scope="module")
def strict(valkey_url: str) -> Iterator[Gateway]:
    """A gateway with small limits and little patience."""
    limits = {
        "max_url_bytes": 300,
        "max_head_bytes": 2_000,
        "head_timeout_s": HEAD_TIMEOUT_S,
        "body_timeout_s": 0.4,
    }
    with serving("http://127.0.0.1:9", redis_url=valkey_url, **limits) as gateway:
        yield gateway


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET /v1/models/%s HTTP/1.1\r\n\r\n" % (b"x" * 400), 414),
        (b"GET /v1/models/%s" % (b"x" * 400_000), 414),
        (b"GET /livez HTTP/1.1\r\nCookie: %s\r\n\r\n" % (b"x" * 2_100), 431),
        (b"GET /livez HTTP/1.1\r\n" + b"X: y\r\n" * 500 + b"\r\n", 431),
        (b"GET /livez HTTP/1.1\r\nCookie: " + b"x" * 400_000, 431),
        (b"GET /livez HTTP/1.1\r\n" + b"x" * 400_000, 431),
    ],
)
def test_urls_and_headers_have_an_end(strict: Gateway, sent: bytes, status: int) -> None:
    (answer,) = answers_of(ask(strict.url, sent))
    assert answer[0] == status
    assert json.loads(answer[1])["error"]["code"] == "request_too_large"


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET /li",
        b"GET /livez HTTP/1.1\r\nX-Slow: ",
        POST + LENGTH % 100 + b"\r\n{",
        POST + CHUNKED + b"\r\n5\r\nhel",
    ],
    ids=["nothing", "half a path", "half a header", "half a body", "half a chunk"],
)
def test_whoever_sends_too_slowly_is_told_so_and_let_go(strict: Gateway, sent: bytes) -> None:
    (answer,) = answers_of(ask(strict.url, sent))
    assert answer[0] == 408
    assert json.loads(answer[1])["error"]["code"] == "request_timeout"


def test_a_connection_that_was_served_is_not_kept_by_blank_lines(strict: Gateway) -> None:
    address = urlsplit(strict.url)
    with socket.create_connection((address.hostname or "", address.port or 0), PATIENCE_S) as connection:
        connection.sendall(SMUGGLED)
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200")
        connection.sendall(b"\r\n" * 3)
        ((status, _),) = answers_of(b"".join(received_on(connection)))
    assert status == 408


def test_a_connection_that_is_used_again_and_again_has_no_deadline_of_its_own(strict: Gateway) -> None:
    began = time.monotonic()
    with httpx.Client(base_url=strict.url) as client:
        while time.monotonic() - began < 2 * HEAD_TIMEOUT_S:
            assert client.get("/livez").status_code == 200
        assert client.get("/metrics").text.count("gravity_http_requests_total") > 0
