"""Connections by TLS: a certificate of an authority that is known, for the name that was asked for."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme

from gateway.errors import UpstreamError, WorkerUnreachable
from gateway.pool.client import WorkerClient
from gateway.pool.reply import Timeouts

PATH = "/v1/chat/completions"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
LIMITS = Timeouts(connect_s=5.0, first_token_s=10.0, idle_s=10.0, whole_s=10.0)


@dataclass
class Seen:
    """What the server has seen."""

    num_connections: int = 0
    protocol: str | None = None
    name: str | None = None


@asynccontextmanager
async def served(authority: trustme.CA, name: str, seen: Seen, answer: bytes = ANSWER) -> AsyncIterator[int]:
    """Serve ``answer`` to every request, with a certificate for ``name``; gives the port."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(name).configure_cert(context)
    context.set_alpn_protocols(["h2", "http/1.1"])
    context.sni_callback = lambda _, asked, __: setattr(seen, "name", asked)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.num_connections += 1
        seen.protocol = writer.get_extra_info("ssl_object").selected_alpn_protocol()
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                await reader.readexactly(2)
                writer.write(answer)
                await writer.drain()
                if answer != ANSWER:
                    writer.transport.abort()
        except (OSError, asyncio.IncompleteReadError):
            return
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1]


@asynccontextmanager
async def client(url: str) -> AsyncIterator[WorkerClient]:
    made = WorkerClient(url, LIMITS)
    try:
        yield made
    finally:
        await made.close()


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> trustme.CA:
    """An authority that OpenSSL's own variable tells the client of, as an operator would."""
    made = trustme.CA()
    made.cert_pem.write_to_path(str(tmp_path / "authority.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))
    return made


async def test_a_known_certificate_is_taken_and_its_connection_used_again(authority: trustme.CA) -> None:
    seen = Seen()
    async with served(authority, "localhost", seen) as port, client(f"https://localhost:{port}") as worker:
        for _ in range(3):
            reply = await worker.send(PATH, b"{}", is_streaming=False)
            assert reply.whole() == b"ok"
    assert seen == Seen(1, "http/1.1", "localhost")


async def test_a_certificate_of_a_stranger_is_refused(authority: trustme.CA) -> None:
    async with (
        served(trustme.CA(), "localhost", Seen()) as port,
        client(f"https://localhost:{port}") as worker,
    ):
        with pytest.raises(WorkerUnreachable) as refused:
            await worker.send(PATH, b"{}", is_streaming=False)
    assert isinstance(refused.value.__cause__, ssl.SSLCertVerificationError)


async def test_a_certificate_for_another_name_is_refused(authority: trustme.CA) -> None:
    async with (
        served(authority, "worker.example", Seen()) as port,
        client(f"https://localhost:{port}") as worker,
    ):
        with pytest.raises(WorkerUnreachable) as refused:
            await worker.send(PATH, b"{}", is_streaming=False)
    assert "localhost" in str(refused.value.__cause__)


async def test_a_server_that_speaks_no_tls_is_refused(authority: trustme.CA) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server, client(f"https://localhost:{server.sockets[0].getsockname()[1]}") as worker:
        with pytest.raises(WorkerUnreachable):
            await worker.send(PATH, b"{}", is_streaming=False)


async def test_an_answer_that_is_cut_off_under_tls_is_no_answer(authority: trustme.CA) -> None:
    cut = b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nok"
    async with (
        served(authority, "localhost", Seen(), cut) as port,
        client(f"https://localhost:{port}") as worker,
    ):
        with pytest.raises(UpstreamError):
            await worker.send(PATH, b"{}", is_streaming=False)
