"""A server with the OpenAI surface that does no work: it answers at once, from bytes made before.

``python -m gateway.bench.upstream PORT``. A stream has as many chunks as ``max_tokens`` says, ``PACE_S``
apart, so that each arrives alone and costs whoever relays it as much as a real token does.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from functools import cache
from typing import cast

import httptools
import uvloop

MODEL = "bench"
PACE_S = 0.002
_LIMIT = re.compile(rb'"max_tokens": ?(\d+)')
_STREAM = re.compile(rb'"stream": ?true')
_MODELS = {"object": "list", "data": [{"id": MODEL, "object": "model", "created": 0, "owned_by": "bench"}]}
_STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"cache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n"
)


class Upstream(asyncio.Protocol):
    """One connection."""

    def __init__(self) -> None:
        self._parser = httptools.HttpRequestParser(self)
        self._body: list[bytes] = []
        self._path = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self._path = url

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        body, self._body = b"".join(self._body), []
        if self._parser.get_method() == b"GET":
            self._transport.write(whole(json.dumps(_MODELS).encode()))
        elif _STREAM.search(body):
            limit = _LIMIT.search(body)
            self._begin(int(limit[1]) if limit else 16)
        else:
            self._transport.write(_completion())

    def _begin(self, num_chunks: int) -> None:
        self._transport.write(_STREAM_HEAD + _event(chunk({"role": "assistant", "content": "word "})))
        self._later(num_chunks - 1)

    def _later(self, num_left: int) -> None:
        asyncio.get_running_loop().call_later(PACE_S, self._continue, num_left)

    def _continue(self, num_left: int) -> None:
        if self._transport.is_closing():
            return
        if num_left > 0:
            self._transport.write(_event(chunk({"content": "word "})))
            self._later(num_left - 1)
        else:
            self._transport.write(_stream_end())


def chunk(delta: dict[str, str], finish: str | None = None) -> bytes:
    """Return one chunk of a stream, as vLLM writes it."""
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    head = {
        "id": "chatcmpl-bench",
        "object": "chat.completion.chunk",
        "created": 1_700_000_000,
        "model": MODEL,
    }
    return json.dumps({**head, "choices": [choice]}, separators=(",", ":")).encode()


def whole(body: bytes) -> bytes:
    """Return ``body`` as an answer of JSON that is not streamed."""
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (
        len(body),
        body,
    )


@cache
def _completion() -> bytes:
    message = {"role": "assistant", "content": "An answer of a few words, as short ones are."}
    answer = {
        "id": "chatcmpl-bench",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": MODEL,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}],
        "usage": _usage(10),
    }
    return whole(json.dumps(answer).encode())


@cache
def _stream_end() -> bytes:
    usage = {"id": "chatcmpl-bench", "object": "chat.completion.chunk", "created": 1_700_000_000}
    last = json.dumps({**usage, "model": MODEL, "choices": [], "usage": _usage(100)}).encode()
    return _event(chunk({}, "stop")) + _event(last) + _event(b"[DONE]") + b"0\r\n\r\n"


def _usage(num_tokens: int) -> dict[str, int]:
    return {"prompt_tokens": 100, "completion_tokens": num_tokens, "total_tokens": 100 + num_tokens}


def _event(data: bytes) -> bytes:
    """Return an event as one chunk of the transfer coding."""
    frame = b"data: " + data + b"\n\n"
    return b"%x\r\n%b\r\n" % (len(frame), frame)


async def _serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Upstream, "127.0.0.1", port, backlog=1024)
    print(json.dumps({"event": "ready", "url": f"http://127.0.0.1:{port}"}), flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve(int(sys.argv[1])))
