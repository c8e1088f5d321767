"""Clients that leave, two hundred times in a row: nothing stays behind."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx
import orjson
import psutil  # type: ignore[import-untyped]

from tests.servers.gateway import CHAT, PLAIN, Gateway, Scripted, StartGateway
from tests.servers.upstream import Hang, Script, StartUpstream, chunk, events, whole

if TYPE_CHECKING:
    from tests.conftest import RunningProcess, WaitUntil

NUM_TIMES = 200
NUM_REAL = 40
"""At a real worker, where each costs a prompt; ``gravity chaos cancelling`` does it 200 times."""
AT_ONCE = 8
ENDLESS = {"max_tokens": 900, "ignore_eos": True}
MODEL = "SmolLM2-135M-Instruct"
JSON = "application/json"
STOP_S = 10.0
"""A bound for a machine that others use too; ``gravity chaos cancelling`` measures against 50 ms."""

MID_STREAM = Script([events(chunk("some"), done=False), Hang()])
BEFORE_A_TOKEN = Script(is_silent=True)
NOT_STREAMED = Script([whole("a")[:20], Hang()], content_type=JSON)


@contextlib.asynccontextmanager
async def asked(url: str, body: Mapping[str, Any]) -> AsyncIterator[asyncio.StreamReader]:
    """Send a request on a connection of its own, which is closed on the way out."""
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    content = orjson.dumps(body)
    head = f"POST {CHAT} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(content)}\r\n\r\n"
    writer.write(head.encode() + content)
    try:
        yield reader
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(STOP_S):
        while not condition():  # noqa: ASYNC110 - the servers live in other threads and processes
            await asyncio.sleep(0.001)


def num_connections(gateway: Gateway) -> int:
    """How many connections this process has to the gateway's port, seen from the gateway's side."""
    port = urlsplit(gateway.url).port
    found = psutil.Process().net_connections(kind="tcp")
    return sum(c.status == "ESTABLISHED" and bool(c.laddr) and c.laddr.port == port for c in found)


async def test_litellm_30245_31499_37140_leaving_200_times_in_every_phase_leaves_nothing_behind(
    scripted: Scripted,
) -> None:
    upstream, gateway = scripted.upstream, scripted.gateway
    phases = itertools.cycle([(MID_STREAM, True), (BEFORE_A_TOKEN, True), (NOT_STREAMED, False)])
    for number, (script, is_streaming) in zip(range(1, NUM_TIMES + 1), phases, strict=False):
        upstream.plays(script)
        async with asked(gateway.url, PLAIN[CHAT] | {"stream": is_streaming}) as answer:
            await until(lambda number=number: len(upstream.received) == number)  # type: ignore[misc]
            if script is MID_STREAM:
                await answer.readuntil(b"some")
        await until(lambda number=number: upstream.num_left == number)  # type: ignore[misc]
        assert upstream.num_open == 0
    await until(lambda: gateway.deps.drain.num_open == 0)
    assert [worker.num_in_flight for worker in gateway.deps.pool.workers] == [0]
    await until(lambda: num_connections(gateway) <= 1)  # the client of all tests may keep one
    upstream.plays(events(chunk("next"), chunk(finish="stop")))
    assert scripted.stream()[-1] == "[DONE]"


async def test_litellm_31499_leaving_often_during_a_retry_leaves_nothing_behind(
    start_upstream: StartUpstream, start_gateway: StartGateway
) -> None:
    dying, silent = start_upstream(), start_upstream()
    dying.plays(Script(dies_at_once=True))
    silent.plays(BEFORE_A_TOKEN)
    gateway = start_gateway(dying.url, silent.url, breaker_failures=100)
    for number in range(1, 41):
        async with asked(gateway.url, PLAIN[CHAT] | {"stream": number % 2 == 0}):
            await until(lambda number=number: len(silent.received) == number)  # type: ignore[misc]
        await until(lambda number=number: silent.num_left == number)  # type: ignore[misc]
    await until(lambda: gateway.deps.drain.num_open == 0)
    assert [worker.num_in_flight for worker in gateway.deps.pool.workers] == [0, 0]
    assert len(dying.received) >= 20
    await until(lambda: num_connections(gateway) == 0)


async def test_leaving_while_documents_are_judged_sends_nothing_to_a_worker(
    start_upstream: StartUpstream, start_gateway: StartGateway
) -> None:
    upstream = start_upstream()
    upstream.plays(events(chunk("next"), chunk(finish="stop")))
    gateway = start_gateway(upstream.url)
    text = "The ferry to the island leaves from the northern pier in winter. "
    for number in range(10):
        documents = [f"{number} {place} " + text * 20 for place in range(60)]
        async with asked(gateway.url, PLAIN[CHAT] | {"documents": documents, "task": "rag_qa"}):
            await until(lambda: gateway.deps.drain.num_open == 1)
        await until(lambda: gateway.deps.drain.num_open == 0)
    assert upstream.received == []
    response = await asyncio.to_thread(httpx.post, gateway.url + CHAT, json=PLAIN[CHAT] | {"stream": True})
    assert response.status_code == 200


async def test_litellm_27955_clients_that_leave_a_real_worker_leave_no_slot_or_position_behind(
    real_gateway: Gateway, worker_server: RunningProcess, wait_until: WaitUntil
) -> None:
    numbers = iter(range(NUM_REAL))

    async def leave_often() -> None:
        for number in numbers:
            body = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}], **ENDLESS}
            async with asked(real_gateway.url, body | {"stream": number % 3 != 2}) as answer:
                if number % 3 == 0:
                    await answer.readuntil(b"data: ")

    async with asyncio.TaskGroup() as clients:
        for _ in range(AT_ONCE):
            clients.create_task(leave_often())
    await until(lambda: real_gateway.deps.drain.num_open == 0)
    assert [worker.num_in_flight for worker in real_gateway.deps.pool.workers] == [0]
    await asyncio.to_thread(wait_until, lambda: _levels(worker_server.url) == [0.0, 0.0, 0.0])
    body = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}
    answer = await asyncio.to_thread(httpx.post, real_gateway.url + CHAT, json=body, timeout=60.0)
    assert answer.json()["usage"]["completion_tokens"] == 2


def _levels(url: str) -> list[float]:
    lines = httpx.get(url + "/metrics").text.splitlines()
    names = ("ng_worker_requests_running ", "ng_worker_requests_waiting ", "ng_worker_kv_tokens_used ")
    return [float(line.split()[1]) for name in names for line in lines if line.startswith(name)]
