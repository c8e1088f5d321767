"""``POST /v1/completions``."""

from __future__ import annotations

from starlette.requests import Request

from gateway.api.answer import TurnResponse
from gateway.api.caller import caller_of
from gateway.api.limits import refusals_charged
from gateway.api.receive import receive
from gateway.api.state import deps_of


async def completions(request: Request) -> TurnResponse:
    deps = deps_of(request)
    async with refusals_charged(request.scope, deps, caller_of(request.scope).key):
        turn = await receive(request, deps, "/v1/completions")
    return TurnResponse(turn, deps)
