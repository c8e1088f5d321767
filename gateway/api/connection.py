"""The gateway's connections: their limits, and how what is no request is told."""

from __future__ import annotations

import logging

from starlette.responses import Response

from gateway.api.problems import shaped
from gateway.errors import HeadTooLarge, InvalidRequest, RequestError, RequestTimedOut, UrlTooLong
from gateway.settings import GatewaySettings
from gateway.telemetry.logs import log
from worker.edge.bounds import BoundedProtocol, Fault, bounded_by

logger = logging.getLogger(__name__)


def bounded(settings: GatewaySettings) -> type[BoundedProtocol]:
    """Return the protocol with the limits of the settings, as uvicorn takes one."""
    return bounded_by(settings, GatewayProtocol)


class GatewayProtocol(BoundedProtocol):
    """Errors come in the shape of their path."""

    def refusal(self, fault: Fault, path: str) -> Response:
        return shaped(_meaning(fault), path)

    def tell_unread(self, unsent_bytes: int) -> None:
        log(logger, logging.WARNING, "client_stopped_reading", unsent_bytes=unsent_bytes)


def _meaning(fault: Fault) -> RequestError:
    match fault:
        case "url_too_long":
            return UrlTooLong()
        case "head_too_large":
            return HeadTooLarge()
        case "timed_out":
            return RequestTimedOut()
        case "not_http":
            return InvalidRequest("This is not a valid HTTP request.")
