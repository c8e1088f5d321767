"""Connections to clients that stop reading."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING

import uvicorn
from starlette.types import Receive, Scope, Send

from worker.edge.patience import PatientProtocol

if TYPE_CHECKING:
    from tests.conftest import WaitUntil


class Impatient(PatientProtocol):
    write_timeout_s = 0.4


def test_a_stream_that_nobody_reads_ends_after_the_write_timeout(wait_until: WaitUntil) -> None:
    sent: list[int] = []
    ends: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while True:
            await send({"type": "http.response.body", "body": b"x" * 10_000, "more_body": True})
            sent.append(10_000)
            if not server.server_state.connections:
                ends.append((await receive())["type"])
                return

    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, http=Impatient, lifespan="off", log_config=None)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    try:
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
            client.connect(listener.getsockname())
            client.sendall(b"GET / HTTP/1.1\r\nHost: worker\r\n\r\n")
            wait_until(lambda: ends == ["http.disconnect"])
        assert sum(sent) < 4 * 2**20, "what is kept for it is bounded"
    finally:
        server.should_exit = True
        thread.join(10.0)
        listener.close()
