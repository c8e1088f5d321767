"""A server with OpenAI's /v1/embeddings: the real encoder, served for real, and failures on demand."""

from __future__ import annotations

import base64
import contextlib
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.context.encoding import BUNDLED_ENCODER, EncoderModel

START_S = 60.0
SERVED_MODEL = "served-minilm"


@dataclass(frozen=True, slots=True)
class Received:
    """One call, as it came in."""

    model: str
    inputs: Sequence[str]
    authorization: str


@dataclass(frozen=True, slots=True)
class Scripted:
    """What the next call gets instead of embeddings."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class EmbeddingServer:
    """Where it serves, what it has been asked, and what it is to answer before it works again."""

    url: str
    received: list[Received] = field(default_factory=list)
    script: deque[Scripted] = field(default_factory=deque)

    @property
    def inputs(self) -> list[str]:
        return [text for call in self.received for text in call.inputs]


@pytest.fixture(scope="session")
def served_embeddings() -> Iterator[EmbeddingServer]:
    """The session's embedding server; take ``embedding_server``, which has forgotten other tests."""
    model = EncoderModel(BUNDLED_ENCODER, "fp32", 1)
    listener = socket.create_server(("127.0.0.1", 0))
    served = EmbeddingServer(f"http://127.0.0.1:{listener.getsockname()[1]}")

    async def embeddings(request: Request) -> Response:
        asked = orjson.loads(await request.body())
        texts = [asked["input"]] if isinstance(asked["input"], str) else asked["input"]
        served.received.append(Received(asked["model"], texts, request.headers.get("authorization", "")))
        if served.script:
            scripted = served.script.popleft()
            return Response(scripted.body, scripted.status, scripted.headers)
        encodings = model.encode(texts, threading.Event())
        data = [
            {"object": "embedding", "index": index, "embedding": _written(encoding.vector, asked)}
            for index, encoding in enumerate(encodings)
        ]
        num_tokens = sum(len(encoding.token_ids) for encoding in encodings)
        usage = {"prompt_tokens": num_tokens, "total_tokens": num_tokens}
        answer = {"object": "list", "data": data[::-1], "model": asked["model"], "usage": usage}
        return Response(orjson.dumps(answer), media_type="application/json")

    app = Starlette(routes=[Route("/v1/embeddings", embeddings, methods=["POST"])])
    with _running(app, listener):
        yield served


@pytest.fixture
def embedding_server(served_embeddings: EmbeddingServer) -> EmbeddingServer:
    served_embeddings.received.clear()
    served_embeddings.script.clear()
    return served_embeddings


def _written(vector: Any, asked: dict[str, Any]) -> Any:
    if asked.get("encoding_format") == "base64":
        return base64.b64encode(vector.astype("<f4").tobytes()).decode()
    return vector.tolist()


@contextlib.contextmanager
def _running(app: Starlette, listener: socket.socket) -> Iterator[None]:
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, lifespan="off"))
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    try:
        deadline = time.monotonic() + START_S
        while not server.started:
            assert thread.is_alive(), "the embedding server did not start"
            assert time.monotonic() < deadline, "the embedding server did not become ready"
            time.sleep(0.01)
        yield
    finally:
        server.should_exit = True
        thread.join(START_S)
        listener.close()
