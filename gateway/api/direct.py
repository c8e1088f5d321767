"""The paths of turns, served without what the framework does around every endpoint."""

from __future__ import annotations

from collections.abc import Iterable

from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect, Request
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.api.problems import error_response
from gateway.api.state import note_error
from gateway.errors import RequestError

DIRECT = frozenset({"/v1/chat/completions", "/v1/completions"})


class Direct:
    """Pure ASGI: a POST to one of ``DIRECT`` goes straight to its endpoint, all else on to the framework.

    An endpoint that takes the request and gives a response uses none of FastAPI's dependencies, exit stacks
    and error wrappers, which cost more than all of stage 1.
    """

    def __init__(self, app: ASGIApp, *, routes: Iterable[BaseRoute]) -> None:
        self._app = app
        self._routes = {
            route.path: route for route in routes if isinstance(route, APIRoute) and route.path in DIRECT
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        route = self._routes.get(scope["path"]) if scope["type"] == "http" else None
        if route is None or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        scope["route"] = route
        try:
            response = await route.endpoint(Request(scope, receive))
        except RequestError as error:
            note_error(scope, error.code)
            response = error_response(error)
        except ClientDisconnect:
            return  # nobody is there to read an answer; the request counts as cancelled
        await response(scope, receive, send)
