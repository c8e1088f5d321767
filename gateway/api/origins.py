"""Pages of other origins: none may call, but those that the settings name, and they ``/v1`` alone."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

METHODS = ("GET", "POST")
REQUEST_HEADERS = ("Authorization", "Content-Type", "X-Request-Id")
ANSWER_HEADERS = ("X-Request-Id", "X-Gravity-Turn-Id", "X-Gravity-Shed", "Retry-After")


class NamedOrigins:
    """Answers preflights for ``origins`` and marks answers to them; every other path is passed through."""

    def __init__(self, app: ASGIApp, origins: Sequence[str]) -> None:
        self._app = app
        self._open = CORSMiddleware(
            app,
            allow_origins=origins,
            allow_methods=METHODS,
            allow_headers=REQUEST_HEADERS,
            expose_headers=ANSWER_HEADERS,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_open = scope["type"] == "http" and scope["path"].startswith("/v1/")
        await (self._open if is_open else self._app)(scope, receive, send)
