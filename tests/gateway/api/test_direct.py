"""The paths of turns past the framework: the same answers, and everything else on the framework's own way."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from gateway.api.access import Access
from gateway.api.direct import Direct, TurnsFirst
from gateway.errors import QueueFull
from gateway.telemetry.metrics import Metrics


async def chat(request: Request) -> Response:
    said = await request.body()
    if said == b"full":
        raise QueueFull(retry_after_s=2.0)
    if said == b"gone":
        raise ClientDisconnect
    if said == b"broken":
        raise KeyError("a secret of the request")
    return Response(said + b" at " + request.scope["route"].path.encode())


async def send(method: str, path: str, content: bytes = b"hello") -> httpx.Response:
    app = TurnsFirst(openapi_url=None)
    for served in ("/v1/chat/completions", "/v1/prune"):
        app.add_api_route(served, chat, methods=["POST"], response_model=None)
    named: dict[str, Any] = {"metrics": Metrics(), "routes": (), "new_id": lambda: "req-new"}
    app.add_middleware(Access, **named)
    app.turns = Access(Direct(app), **named)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
        return await client.request(method, path, content=content)


async def test_a_turn_is_answered_and_its_route_is_known_to_what_stands_around() -> None:
    assert (await send("POST", "/v1/chat/completions")).text == "hello at /v1/chat/completions"


async def test_an_error_has_its_status_its_shape_and_its_headers() -> None:
    answer = await send("POST", "/v1/chat/completions", b"full")
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "2")
    assert answer.json()["error"]["code"] == "queue_full"


async def test_other_paths_and_methods_go_on_to_the_framework() -> None:
    assert (await send("POST", "/v1/prune")).text == "hello at /v1/prune"
    assert (await send("GET", "/v1/chat/completions")).status_code == 405
    assert (await send("POST", "/v1/nothing")).status_code == 404


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/prune"])
async def test_what_nobody_expected_is_an_error_of_our_shape_and_has_the_request_s_id(path: str) -> None:
    answer = await send("POST", path, b"broken")
    assert (answer.status_code, answer.headers["x-request-id"]) == (500, "req-new")
    assert answer.json()["error"]["code"] == "internal_error"
    assert "secret" not in answer.text


async def test_whoever_has_gone_is_sent_nothing() -> None:
    sent: list[object] = []

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": b"gone", "more_body": False}

    async def keep(message: object) -> None:
        sent.append(message)

    app = FastAPI(openapi_url=None)
    app.add_api_route("/v1/completions", chat, methods=["POST"], response_model=None)
    scope = {"type": "http", "method": "POST", "path": "/v1/completions", "headers": [], "query_string": b""}
    await Direct(app)(scope, receive, keep)
    assert sent == []
