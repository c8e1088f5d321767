"""The paths of turns, served without what the framework does around every endpoint."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.api.problems import error_response
from gateway.api.state import note_error
from gateway.errors import RequestError

DIRECT = frozenset({"/v1/chat/completions", "/v1/completions"})


class TurnsFirst(FastAPI):
    """The framework, but a POST to one of ``DIRECT`` goes to ``turns`` where that is set.

    What the framework and its middleware do around a request costs 30 µs even where they do nothing.
    """

    def __init__(self, **named: Any) -> None:
        super().__init__(**named)
        self.turns: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_turn = scope["type"] == "http" and scope["path"] in DIRECT and scope["method"] == "POST"
        if self.turns is None or not is_turn:
            await super().__call__(scope, receive, send)
            return
        scope["app"] = self
        await self.turns(scope, receive, send)


class Direct:
    """Pure ASGI: takes a request straight to the endpoint of its path, which must be one of ``DIRECT``.

    An endpoint that takes the request and gives a response uses none of FastAPI's dependencies, exit stacks
    and error wrappers, which cost more than all of stage 1.
    """

    def __init__(self, app: FastAPI) -> None:
        self._routes = {
            route.path: route for route in app.routes if isinstance(route, APIRoute) and route.path in DIRECT
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["route"] = route = self._routes[scope["path"]]
        try:
            response = await route.endpoint(Request(scope, receive))
        except RequestError as error:
            note_error(scope, error.code)
            response = error_response(error)
        except ClientDisconnect:
            return  # nobody is there to read an answer; the request counts as cancelled
        await response(scope, receive, send)
