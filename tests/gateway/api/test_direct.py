"""The paths of turns past the framework: the same answers, and everything else on the framework's own way."""

from __future__ import annotations

import httpx
from fastapi import FastAPI
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from gateway.api.direct import Direct
from gateway.errors import QueueFull


async def chat(request: Request) -> Response:
    said = await request.body()
    if said == b"full":
        raise QueueFull(retry_after_s=2.0)
    if said == b"gone":
        raise ClientDisconnect
    return Response(said + b" at " + request.scope["route"].path.encode())


async def send(method: str, path: str, content: bytes = b"hello") -> httpx.Response:
    app = FastAPI(openapi_url=None)
    for served in ("/v1/chat/completions", "/v1/prune"):
        app.add_api_route(served, chat, methods=["POST"], response_model=None)
    app.add_middleware(Direct, routes=app.routes)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://gateway") as client:
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


async def test_whoever_has_gone_is_sent_nothing() -> None:
    sent: list[object] = []

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": b"gone", "more_body": False}

    async def keep(message: object) -> None:
        sent.append(message)

    app = FastAPI(openapi_url=None)
    app.add_api_route("/v1/completions", chat, methods=["POST"], response_model=None)
    scope = {"type": "http", "method": "POST", "path": "/v1/completions", "headers": [], "query_string": b""}
    await Direct(app, routes=app.routes)(scope, receive, keep)
    assert sent == []
