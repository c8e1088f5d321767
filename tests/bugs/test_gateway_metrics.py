"""Public reports about metrics, as inputs to the gateway."""

from __future__ import annotations

import logging
import socket
from collections.abc import Sequence
from urllib.parse import urlsplit

import orjson
import pytest

from tests.raw_http import answers_of, received_on
from tests.servers.gateway import CHAT, PLAIN, Scripted

NUM_NAMES = 10_000
NUM_A_CONNECTION = 1_000


def test_litellm_39136_ten_thousand_made_up_models_and_paths_add_no_series(
    scripted: Scripted, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)  # ten thousand lines that nobody reads
    series_of(scripted)  # asking is a series too
    ask(scripted, ["first", "second"])
    before = series_of(scripted)
    for start in range(0, NUM_NAMES, NUM_A_CONNECTION):
        ask(scripted, [f"made-up-{number}" for number in range(start, start + NUM_A_CONNECTION)])
    after = series_of(scripted)
    assert after == before
    assert not any("made-up" in line for line in after)
    assert scripted.upstream.received == []


def ask(scripted: Scripted, names: Sequence[str]) -> None:
    """Name a model and a path in turn, all on one connection; nothing is found."""
    address = urlsplit(scripted.gateway.url)
    requests = [model(name) if number % 2 else path(name) for number, name in enumerate(names)]
    with socket.create_connection((address.hostname or "", address.port or 0), 60.0) as connection:
        connection.sendall(
            b"".join([*requests[:-1], requests[-1].replace(b"\r\n", b"\r\nConnection: close\r\n", 1)])
        )
        answers = answers_of(b"".join(received_on(connection)))
    assert [status for status, _ in answers] == [404] * len(names)


def model(name: str) -> bytes:
    content = orjson.dumps(PLAIN[CHAT] | {"model": name})
    return (
        f"POST {CHAT} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(content)}\r\n\r\n".encode()
        + content
    )


def path(name: str) -> bytes:
    return f"GET /{name}/{name} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()


def series_of(scripted: Scripted) -> set[str]:
    """Every series by its name and labels."""
    lines = scripted.client.get("/metrics").text.splitlines()
    return {line.rpartition(" ")[0] for line in lines if not line.startswith("#")}
