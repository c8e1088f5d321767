"""Around every request: its id, bound to the log and sent back, and its place in the metrics."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.api.limits import HEADERS
from gateway.api.problems import shaped
from gateway.api.state import note_error
from gateway.errors import InternalError, RequestError
from gateway.telemetry.logs import request_id
from gateway.telemetry.metrics import Metrics, closed

REQUEST_ID_HEADER = "X-Request-Id"
_REQUEST_ID = REQUEST_ID_HEADER.lower().encode()
_NO_SNIFFING = (b"x-content-type-options", b"nosniff")
_SAFE_ID = re.compile(r"[A-Za-z0-9_.:-]{1,128}")


class Access:
    """Pure ASGI: a stream passes through untouched, a disconnect reaches the endpoint."""

    def __init__(
        self, app: ASGIApp, *, metrics: Metrics, routes: Collection[str], new_id: Callable[[], str]
    ) -> None:
        self._app = app
        self._metrics = metrics
        self._routes = routes
        self._new_id = new_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get(REQUEST_ID_HEADER, "")
        name = given if _SAFE_ID.fullmatch(given) else self._new_id()
        token = request_id.set(name)
        status = 0

        async def send_named(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                # Written by hand: an answer names none of them itself, and a header map costs 10 µs.
                message["headers"] = [*message["headers"], (_REQUEST_ID, name.encode()), _NO_SNIFFING]
                if HEADERS in scope:
                    MutableHeaders(scope=message).update(scope[HEADERS])
            await send(message)

        try:
            await self._app(scope, receive, send_named)
        except Exception:
            if not status:
                note_error(scope, InternalError.code)
                await shaped(InternalError(), scope["path"])(scope, receive, send_named)
            raise
        finally:
            self._count(scope, status)
            request_id.reset(token)

    def _count(self, scope: Scope, status: int) -> None:
        route = getattr(scope.get("route"), "path", "")
        status_class = f"{status // 100}xx" if status else "cancelled"
        code = scope.get("gravity.error_code", "")
        self._metrics.http_requests.labels(
            closed(route, self._routes), status_class, closed(code, ERROR_CODES) if code else ""
        ).inc()


def _codes(error: type[RequestError]) -> Iterator[str]:
    yield error.code
    for narrower in error.__subclasses__():
        yield from _codes(narrower)


ERROR_CODES = frozenset(_codes(RequestError))
