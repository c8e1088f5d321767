"""``POST /v1/chat/completions``."""

from __future__ import annotations

from starlette.requests import Request

from gateway.api.answer import TurnResponse
from gateway.api.receive import receive
from gateway.api.state import deps_of


async def chat(request: Request) -> TurnResponse:
    deps = deps_of(request)
    return TurnResponse(await receive(request, deps, "/v1/chat/completions"), deps)
