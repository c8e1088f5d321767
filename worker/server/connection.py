"""The worker's connections: their limits, and how what is no request is told."""

from __future__ import annotations

import logging

from starlette.responses import Response

from worker.edge.bounds import BoundedProtocol, Fault, bounded_by
from worker.errors import HeadTooLargeError, RequestError, RequestTimedOutError, UrlTooLongError
from worker.server.answer import JsonResponse
from worker.settings import WorkerSettings

log = logging.getLogger(__name__)


def bounded(settings: WorkerSettings) -> type[BoundedProtocol]:
    """Return the protocol with the limits of the settings, as uvicorn takes one."""
    return bounded_by(settings, WorkerProtocol)


class WorkerProtocol(BoundedProtocol):
    """Errors are the worker's own."""

    def refusal(self, fault: Fault, path: str) -> Response:
        error = _meaning(fault)
        return JsonResponse(error.body(), status_code=error.status)

    def tell_unread(self, unsent_bytes: int) -> None:
        log.warning("a client has stopped reading", extra={"unsent_bytes": unsent_bytes})


def _meaning(fault: Fault) -> RequestError:
    match fault:
        case "url_too_long":
            return UrlTooLongError("the URL is too long")
        case "head_too_large":
            return HeadTooLargeError("the headers are too large")
        case "timed_out":
            return RequestTimedOutError("the request did not arrive in time")
        case "not_http":
            return RequestError("this is not a valid HTTP request")
