"""Around every request: the worker's mark in the headers, and the counters."""

from __future__ import annotations

from collections.abc import Callable

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from worker.server.metrics import OTHER, Metrics

_CLIENT_LEFT = 499
_UNEXPECTED = 500


class Observed:
    """Plain ASGI, so that a stream passes through untouched."""

    def __init__(self, app: ASGIApp, metrics: Metrics, clock_s: Callable[[], float]) -> None:
        self._app = app
        self._metrics = metrics
        self._clock_s = clock_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = _CLIENT_LEFT
        started_s = self._clock_s()

        async def send_marked(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["x-gravity-worker"] = "native"
            await send(message)

        try:
            await self._app(scope, receive, send_marked)
        except Exception:
            status = _UNEXPECTED
            raise
        finally:
            route = scope.get("route")
            template = route.path if route is not None else OTHER
            self._metrics.observe_request(template, status, self._clock_s() - started_s)
