"""A worker that answers as far as it is told and then waits; it sees the moment when its client goes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import perf_counter
from typing import Literal, TypeAlias

import orjson

from gateway.stack.ports import LOOPBACK

Phase: TypeAlias = Literal["before the first token", "mid-stream", "not streamed", "refuses"]

MODEL = "waits"
MODELS = orjson.dumps({"object": "list", "data": [{"id": MODEL, "object": "model"}]})
HEAD = "HTTP/1.1 200 OK\r\nContent-Type: {type}\r\n{length}\r\n"
BEGUN = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
REFUSAL = b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\n\r\n"
"""A full queue: worth a retry elsewhere, and no breaker opens for it."""
CHUNK = (
    b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"waits",'
    b'"choices":[{"index":0,"delta":{"content":"some"},"finish_reason":null}]}\n\n'
)


class WaitingUpstream:
    """``phase`` says how far it answers the next request; ``asked`` and ``left`` get a moment of each.

    Moments are seconds of ``perf_counter``: when a request had come, and when its connection was closed.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.phase: Phase = "before the first token"
        self.asked: asyncio.Queue[float] = asyncio.Queue()
        self.left: asyncio.Queue[float] = asyncio.Queue()
        self.num_open = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until its other end closes it."""
        try:
            while await self._answer_one(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()

    async def _answer_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        if head.startswith("get "):
            writer.write(HEAD.format(type="application/json", length=_length(MODELS)).encode() + MODELS)
            return True
        await reader.readexactly(int(head.partition("content-length:")[2].split()[0]))
        self.asked.put_nowait(perf_counter())
        if self.phase == "refuses":
            writer.write(REFUSAL)
            return True
        if self.phase == "mid-stream":
            writer.write(BEGUN.encode() + b"%x\r\n%b\r\n" % (len(CHUNK), CHUNK))
        elif self.phase == "not streamed":
            writer.write(
                (HEAD.format(type="application/json", length="Content-Length: 999\r\n") + "{").encode()
            )
        self.num_open += 1
        with contextlib.suppress(ConnectionError):
            await reader.read()
        self.num_open -= 1
        self.left.put_nowait(perf_counter())
        return False


@asynccontextmanager
async def waiting_upstream(port: int) -> AsyncIterator[WaitingUpstream]:
    """Serve on the loopback address until the block ends."""
    upstream = WaitingUpstream(f"http://{LOOPBACK}:{port}")
    server = await asyncio.start_server(upstream.answer, LOOPBACK, port)
    try:
        yield upstream
    finally:
        server.close()


def _length(content: bytes) -> str:
    return f"Content-Length: {len(content)}\r\n"
