"""Where the gateway connects to: what is refused as it is written, and what where it really leads."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from pydantic import ValidationError

from gateway.addresses import check_url, is_out_of_bounds, parsed
from gateway.context.checked_transport import CheckedTransport
from gateway.errors import UpstreamError, WorkerUnreachable
from gateway.pool.client import WorkerClient
from gateway.pool.reply import Timeouts
from gateway.settings import GatewaySettings
from tests.hostile.judge import Attacked
from tests.servers.gateway import CHAT, PLAIN, StartGateway
from tests.servers.upstream import Script, Upstream

SECONDS = Timeouts(connect_s=5.0, first_token_s=5.0, idle_s=5.0, whole_s=5.0)
METADATA = "169.254.169.254"


@pytest.mark.parametrize(
    "url",
    [
        "ftp://worker",
        "file:///etc/passwd",
        "gopher://worker:70/_x",
        "http://",
        "http:///v1",
        "//worker",
        "worker:8081",
        "http://user:secret@worker",
        "http://worker@169.254.169.254",
        "http://worker:0",
        "http://worker:99999",
        "http://[::1",
        "http://worker?x=1",
        "http://worker#x",
        "http://worker\\@evil",
        "http://wor ker",
        "http://worker\n.example",
        "http://wörker",
        f"http://{METADATA}/latest/meta-data",
        "http://[::ffff:169.254.169.254]",
        "http://[64:ff9b::a9fe:a9fe]",
        "http://[2002:a9fe:a9fe::1]",
        "http://[fe80::1%25eth0]",
        "http://[fd00:ec2::254]",
        "http://100.100.100.200",
        "http://168.63.129.16",
        "http://224.0.0.1",
        "http://255.255.255.255",
    ],
)
def test_what_is_no_address_of_a_worker_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(ValueError, match="a worker's address") as told:
        check_url(url, "a worker's address")
    assert "secret" not in str(told.value)
    for settings in ({"workers": (url,)}, {"encoder_url": url}, {"otel_endpoint": url}):
        with pytest.raises(ValidationError) as refused:
            GatewaySettings(**settings)
        assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    "url",
    ["http://worker", "https://worker.example:8443/base", "http://127.0.0.1:8081", "http://[::1]:8081",
     "http://10.0.0.5", "http://192.168.1.2:1", "http://[fd12:3456::1]"],
)  # fmt: skip
def test_private_networks_are_where_workers_live(url: str) -> None:
    check_url(url, "a worker's address")


def test_a_network_may_be_allowed_by_name() -> None:
    settings = GatewaySettings(
        allowed_networks="169.254.10.0/24, fe80::/10",
        workers="http://169.254.10.7",
        otel_endpoint="http://[fe80::7]:4318/",
    )
    assert settings.workers == ("http://169.254.10.7",)
    assert settings.otel_endpoint == "http://[fe80::7]:4318"
    with pytest.raises(ValidationError):
        GatewaySettings(allowed_networks="169.254.10.0/24", workers=f"http://{METADATA}")


def test_every_link_local_address_is_out_of_bounds_and_no_private_one() -> None:
    for text in ("169.254.0.1", "169.254.255.254", "fe80::1", "febf::1", "ff02::1", METADATA):
        address = parsed(text)
        assert address is not None
        assert is_out_of_bounds(address, ())
    for text in ("127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.0.1", "8.8.8.8", "::1", "2606:4700::1"):
        assert not is_out_of_bounds(ipaddress.ip_address(text), ())


@pytest.fixture
def resolves(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Make the system's resolver answer for one name as a hostile server of names would: in turn."""

    def answer(name: str, *addresses: str) -> None:
        left = list(addresses)
        real = socket.getaddrinfo

        def getaddrinfo(host: Any, port: Any, *arguments: Any, **named: Any) -> Any:
            if host not in (name, name.encode()):
                return real(host, port, *arguments, **named)
            address = left.pop(0) if len(left) > 1 else left[0]
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, int(port or 0)))]

        monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)

    return answer


@pytest.mark.parametrize("host", [METADATA, "0xa9fea9fe", "2852039166", "0251.0376.0251.0376"])
async def test_a_worker_is_not_connected_to_where_it_resolves_to_metadata(host: str) -> None:
    client = WorkerClient(f"http://{host}:80", SECONDS)
    try:
        with pytest.raises(UpstreamError) as refused:
            await client.capabilities(timeout_s=5.0)
    finally:
        await client.close()
    # The first two are connections that were refused; the others aiohttp takes for no host at all.
    assert ("NG_ALLOWED_NETWORKS" in str(refused.value.__cause__)) == (host in (METADATA, "0xa9fea9fe"))


async def test_a_name_that_leads_elsewhere_the_second_time_is_refused_then(
    upstream: Upstream, resolves: Callable[..., None]
) -> None:
    """DNS rebinding: the first answer is harmless, the next one is the metadata service."""
    resolves("rebinding.example", "127.0.0.1", METADATA)
    clients = [WorkerClient(f"http://rebinding.example:{upstream.port}", SECONDS) for _ in range(2)]
    try:
        assert (await clients[0].capabilities(timeout_s=5.0)).level == "native"
        with pytest.raises(WorkerUnreachable):
            await clients[1].capabilities(timeout_s=5.0)
    finally:
        for client in clients:
            await client.close()


@pytest.mark.parametrize("is_allowed", [True, False])
async def test_an_encoder_is_held_to_the_same(
    upstream: Upstream, resolves: Callable[..., None], is_allowed: bool
) -> None:
    resolves("encoder.example", METADATA)
    allowed = [ipaddress.ip_network("169.254.0.0/16")] if is_allowed else []
    async with httpx.AsyncClient(transport=CheckedTransport(allowed), timeout=1.0) as client:
        with pytest.raises(httpx.TransportError) as refused:
            await client.get(f"http://encoder.example:{upstream.port}/v1/models")
    assert ("NG_ALLOWED_NETWORKS" in str(refused.value)) != is_allowed


async def test_an_encoder_by_name_is_reached(upstream: Upstream) -> None:
    async with httpx.AsyncClient(transport=CheckedTransport(()), timeout=5.0) as client:
        answer = await client.get(f"http://localhost:{upstream.port}/v1/models")
    assert answer.status_code == 200


@pytest.fixture
def elsewhere() -> Iterator[socket.socket]:
    """A port that nobody may be sent to; a connection to it waits in its backlog."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        yield listener


async def test_no_redirect_of_a_worker_is_followed(
    upstream: Upstream, elsewhere: socket.socket, start_gateway: StartGateway
) -> None:
    target = f"http://127.0.0.1:{elsewhere.getsockname()[1]}/"
    upstream.plays(Script([b""], status=307, headers={"Location": target}))
    gateway = start_gateway(upstream.url)
    async with httpx.AsyncClient(base_url=gateway.url, timeout=30.0) as client:
        answer = await client.post(CHAT, json=PLAIN[CHAT])
    assert answer.status_code == 502
    assert "location" not in answer.headers
    with pytest.raises(BlockingIOError):
        elsewhere.accept()


async def test_no_redirect_of_a_probe_is_followed(elsewhere: socket.socket) -> None:
    async def redirect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        port = elsewhere.getsockname()[1]
        writer.write(
            b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:%d/\r\nContent-Length: 0\r\n\r\n" % port
        )
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(redirect, "127.0.0.1", 0) as server:
        client = WorkerClient(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", SECONDS)
        try:
            with pytest.raises(UpstreamError):
                await client.capabilities(timeout_s=5.0)
        finally:
            await client.close()
    with pytest.raises(BlockingIOError):
        elsewhere.accept()


@pytest.mark.parametrize(
    "url", [f"http://{METADATA}", "http://u:p@worker", "file:///etc/passwd", "http://[::1"]
)
def test_no_such_worker_can_be_registered_at_run_time(attacked: Attacked, url: str) -> None:
    answer = attacked.client.post("/admin/workers", json={"url": url})
    assert answer.status_code == 400
    assert url not in answer.text
