"""Answers as servers really send them, on connections that are used again or must not be."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import pytest

from gateway.errors import UpstreamError, UpstreamRejected, UpstreamTimeout, WorkerUnreachable
from gateway.pool.client import WorkerClient
from gateway.pool.heads import Heads
from gateway.pool.reply import Reply, Timeouts

PATH = "/v1/chat/completions"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
LIMITS = Timeouts(connect_s=5.0, first_token_s=10.0, idle_s=10.0, whole_s=10.0)

Play: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
"""Plays the server for one request; its head has been read, its body has not."""


class Server:
    """Plays ``play`` for every request. ``requests``: each one's (connection's number, head, body)."""

    def __init__(self, play: Play) -> None:
        self.play = play
        self.requests: list[tuple[int, bytes, bytes]] = []
        self.num_connections = 0
        self.num_closed = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = self.num_connections
        self.num_connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(
                    int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"Content-Length:")
                )
                self.requests.append((number, head, await reader.readexactly(length)))
                await self.play(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            return
        finally:
            self.num_closed += 1
            writer.close()


def says(*parts: bytes, then_ends: bool = False) -> Play:
    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0)
        if then_ends:
            writer.close()

    return play


@asynccontextmanager
async def worker(play: Play, limits: Timeouts = LIMITS) -> AsyncIterator[tuple[WorkerClient, Server]]:
    served = Server(play)
    listening = await asyncio.start_server(served.serve, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    client = WorkerClient(f"http://127.0.0.1:{port}", limits, api_key="key")
    try:
        yield client, served
    finally:
        await client.close()
        listening.close()


async def whole(client: WorkerClient, body: bytes = b"{}", **headers: str) -> bytes:
    reply = await client.send(PATH, body, is_streaming=False, headers=headers)
    reply.close()
    return reply.whole()


async def stream(client: WorkerClient) -> Reply:
    return await client.send(PATH, b"{}", is_streaming=True)


async def become(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_request_says_what_servers_need_to_know() -> None:
    async with worker(says(OK)) as (client, served):
        assert await whole(client, b'{"a": 1}', traceparent="00-a-b-01") == b"ok"
        ((_, head, body),) = served.requests
    lines = head.decode().split("\r\n")
    assert lines[0] == "POST /v1/chat/completions HTTP/1.1"
    host = client.url.removeprefix("http://")
    assert {f"Host: {host}", "Accept-Encoding: identity", "Authorization: Bearer key"} <= set(lines)
    assert {"Content-Type: application/json", "Content-Length: 8", "traceparent: 00-a-b-01"} <= set(lines)
    assert body == b'{"a": 1}'


async def test_a_connection_is_used_again_and_two_requests_at_once_have_two() -> None:
    async with worker(says(OK)) as (client, served):
        assert [await whole(client) for _ in range(3)] == [b"ok"] * 3
        assert served.num_connections == 1
        assert list(await asyncio.gather(whole(client), whole(client))) == [b"ok"] * 2
        assert served.num_connections == 2


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n1;e=1\r\nk\r\n0\r\nX: 1\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + OK,
        b"HTTP/1.1 200\r\ncontent-length:2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    ],
)
@pytest.mark.parametrize("in_bytes", [False, True])
async def test_a_whole_answer_is_read_however_it_comes_and_its_connection_is_free(
    answer: bytes, in_bytes: bool
) -> None:
    parts = [answer[at : at + 1] for at in range(len(answer))] if in_bytes else [answer]
    async with worker(says(*parts)) as (client, served):
        assert [await whole(client) for _ in range(2)] == [b"ok"] * 2
        assert served.num_connections == 1


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nok",
    ],
)
async def test_without_a_length_an_answer_ends_with_its_connection(answer: bytes) -> None:
    async with worker(says(answer, then_ends=True)) as (client, served):
        assert [await whole(client) for _ in range(2)] == [b"ok"] * 2
        assert served.num_connections == 2


async def test_a_server_that_says_close_is_asked_on_another_connection() -> None:
    answer = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"
    async with worker(says(answer)) as (client, served):
        assert [await whole(client) for _ in range(2)] == [b"ok"] * 2
        assert served.num_connections == 2
        await become(lambda: served.num_closed == 2)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n",
    ],
)
async def test_an_answer_that_is_cut_short_is_the_workers_failure(answer: bytes) -> None:
    async with worker(says(answer, then_ends=True)) as (client, _):
        with pytest.raises(UpstreamError):
            await whole(client)


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: two\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nok\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000,
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 50_000,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: " + b"y" * 300_000,
    ],
)
async def test_what_is_no_answer_is_the_workers_failure_and_ends_the_connection(answer: bytes) -> None:
    async with worker(says(answer)) as (client, served):
        with pytest.raises(UpstreamError) as raised:
            await whole(client)
        assert not isinstance(raised.value, WorkerUnreachable)
        await become(lambda: served.num_closed == 1)


async def test_what_was_compressed_although_nobody_asked_is_read_all_the_same() -> None:
    packed = gzip.compress(b"ok" * 1000)
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed)
    async with worker(says(head, packed[:10], packed[10:])) as (client, _):
        assert await whole(client) == b"ok" * 1000


async def test_a_small_body_that_inflates_without_end_is_refused() -> None:
    packed = gzip.compress(bytes(64 * 1024 * 1024))
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed)
    async with worker(says(head, packed)) as (client, _):
        with pytest.raises(UpstreamError):
            await whole(client)


async def test_words_that_nobody_asked_for_end_a_free_connection() -> None:
    async with worker(says(OK + OK)) as (client, served):
        assert await whole(client) == b"ok"
        await become(lambda: served.num_closed == 1)
        assert await whole(client) == b"ok"
        assert served.num_connections == 2


async def test_a_refusal_keeps_its_meaning_and_its_connection() -> None:
    body = b'{"error": {"message": "no", "code": "bad", "param": "x"}}'
    refused = b"HTTP/1.1 400 Bad Request\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    async with worker(says(refused)) as (client, served):
        for _ in range(2):
            with pytest.raises(UpstreamRejected) as raised:
                await stream(client)
            assert (raised.value.message, raised.value.code, raised.value.param) == ("no", "bad", "x")
        assert served.num_connections == 1


async def test_a_stream_comes_as_it_is_sent_and_leaves_its_connection_free() -> None:
    body = HEAD + b"Transfer-Encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n"
    async with worker(says(body, b"9\r\ndata: 2\n\n\r\n", b"0\r\n\r\n")) as (client, served):
        for _ in range(2):
            reply = await stream(client)
            assert [event async for event in reply] == [b"1", b"2"]
            await reply.settle()
            reply.close()
        assert served.num_connections == 1


async def test_closing_ends_a_stream_at_its_server_and_no_other() -> None:
    body = HEAD + b"Transfer-Encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n"
    async with worker(says(body)) as (client, served):
        first, second = await stream(client), await stream(client)
        assert await anext(first) == await anext(second) == b"1"
        first.close()
        await become(lambda: served.num_closed == 1)
        with pytest.raises(UpstreamError):
            await anext(first)
        assert served.num_closed == 1
        await client.close()
        await become(lambda: served.num_closed == 2)
        with pytest.raises(UpstreamError):
            await anext(second)


async def test_a_cancelled_request_ends_its_connection() -> None:
    async with worker(says()) as (client, served):
        asking = asyncio.create_task(whole(client))
        await become(lambda: served.requests)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await become(lambda: served.num_closed == 1)


async def test_a_server_waits_for_a_reader_that_does_not_read() -> None:
    num_bytes = 32 * 1024 * 1024
    event = b"data: " + b"x" * 65_536 + b"\n\n"
    sent = 0

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(HEAD + b"Connection: close\r\n\r\n")
        while sent < num_bytes:
            writer.write(event)
            await writer.drain()
            sent += len(event)
        writer.close()

    async with worker(play) as (client, _):
        reply = await stream(client)
        await anext(reply)
        seen = -1
        while seen != sent:  # until it stands still
            seen = sent
            await asyncio.sleep(0.05)
        assert sent < num_bytes
        num_events = 1
        async for each in reply:
            num_events += 1
            assert len(each) == 65_536
        assert num_events * len(event) == sent


async def test_a_large_body_is_sent_whole() -> None:
    async with worker(says(OK)) as (client, served):
        assert await whole(client, b"x" * 5_000_000) == b"ok"
        assert len(served.requests[0][2]) == 5_000_000


@pytest.mark.parametrize("part", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no"])
async def test_silence_ends_a_request(part: bytes) -> None:
    async with worker(says(part), Timeouts(5.0, 0.1, 0.1, 0.1)) as (client, served):
        with pytest.raises(UpstreamTimeout):
            await whole(client)
        await become(lambda: served.num_closed == 1)


async def test_whoever_does_not_listen_is_unreachable() -> None:
    async with worker(says(OK)) as (client, _):
        pass
    await client.close()
    again = WorkerClient(client.url, LIMITS)
    with pytest.raises(WorkerUnreachable):
        await whole(again)
    await again.close()


async def test_an_address_out_of_bounds_is_not_connected_to() -> None:
    client = WorkerClient("http://169.254.169.254", LIMITS)
    with pytest.raises(WorkerUnreachable):
        await whole(client)
    await client.close()


async def test_a_free_connection_is_ended_before_its_server_would() -> None:
    async with worker(says(OK)) as (client, served):
        assert await whole(client) == b"ok"
        await become(lambda: served.num_closed == 1)


def test_a_header_with_a_line_break_is_not_written() -> None:
    with pytest.raises(ValueError, match="line break"):
        Heads("http://a", {"Authorization": "Bearer a\r\nX: y"})


def test_a_url_with_a_path_is_what_paths_are_below() -> None:
    head = Heads("http://a:80/base/", {}).of("/v1/x", 3, {})
    assert head.startswith(b"POST /base/v1/x HTTP/1.1\r\nHost: a:80\r\n")
