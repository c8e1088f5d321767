"""A worker's connections before there is a request: how much they may send, and how long they may take."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.raw_http import answers_of, ask

if TYPE_CHECKING:
    from tests.conftest import RunningProcess, StartProcess

POST = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"


@pytest.fixture(scope="module")
def strict(start_process: StartProcess, worker_environment: Mapping[str, str]) -> RunningProcess:
    """A worker with small limits and little patience."""
    limits = {
        "MAX_URL_BYTES": "300",
        "MAX_HEAD_BYTES": "2000",
        "HEAD_TIMEOUT_S": "0.4",
        "BODY_TIMEOUT_S": "0.4",
    }
    named = {f"NG_WORKER_{name}": value for name, value in limits.items()}
    return start_process(["-m", "worker"], {**worker_environment, **named})


@pytest.mark.parametrize(
    ("sent", "status", "code"),
    [
        (b"GET /%s HTTP/1.1\r\n\r\n" % (b"x" * 400), 414, "request_too_large"),
        (b"GET /livez HTTP/1.1\r\nCookie: %s\r\n\r\n" % (b"x" * 2_100), 431, "request_too_large"),
        (b"GET /livez HTTP/1.1\r\n" + b"x" * 400_000, 431, "request_too_large"),
        (b"", 408, "request_timeout"),
        (b"GET /livez HTTP/1.1\r\nX-Slow: ", 408, "request_timeout"),
        (POST + b"Content-Length: 100\r\n\r\n{", 408, "request_timeout"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400, "invalid_value"),
    ],
    ids=[
        "a long url",
        "large headers",
        "a header without end",
        "nothing",
        "half a header",
        "half a body",
        "TLS",
    ],
)
def test_what_is_no_request_in_time_is_refused_and_closed(
    strict: RunningProcess, sent: bytes, status: int, code: str
) -> None:
    ((answered, body),) = answers_of(ask(strict.url, sent))
    assert (answered, json.loads(body)["error"]["code"]) == (status, code)
    assert httpx.get(f"{strict.url}/livez").status_code == 200
