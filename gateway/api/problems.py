"""Errors as answers: OpenAI's object everywhere, RFC 9457 problem details under ``/admin``."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import orjson
from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gateway.api.state import note_error
from gateway.errors import (
    AuthenticationFailed,
    InternalError,
    InvalidRequest,
    MethodNotAllowed,
    NotFound,
    RequestError,
    RequestTooLarge,
)

ADMIN_PREFIX = "/admin/"

logger = logging.getLogger(__name__)


def headers_of(error: RequestError) -> dict[str, str]:
    """``Retry-After`` in whole seconds, at least one; which scheme a key is sent by.

    For a body that was not read there is no keep-alive.
    """
    headers = {}
    if error.retry_after_s is not None:
        headers["Retry-After"] = str(max(1, math.ceil(error.retry_after_s)))
    if isinstance(error, RequestTooLarge):
        headers["Connection"] = "close"
    if isinstance(error, AuthenticationFailed):
        headers["WWW-Authenticate"] = "Bearer"
    return headers


def error_response(error: RequestError, headers: Mapping[str, str] | None = None) -> Response:
    """The error as the OpenAI surface writes it."""
    return Response(
        orjson.dumps(error.as_body()),
        status_code=error.status,
        media_type="application/json",
        headers={**headers_of(error), **(headers or {})},
    )


def problem_response(error: RequestError, path: str) -> Response:
    """The error as RFC 9457 writes it."""
    problem: dict[str, Any] = {
        **error.details,
        "type": "about:blank",
        "title": HTTPStatus(error.status).phrase,
        "status": error.status,
        "detail": error.message,
        "instance": path,
        "code": error.code,
    }
    return Response(
        orjson.dumps(problem),
        status_code=error.status,
        media_type="application/problem+json",
        headers=headers_of(error),
    )


class Unsent(Response):
    """No answer: nobody is there to read one. The request counts as cancelled."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        return


def install(app: FastAPI) -> None:
    """Answer every error of the application in the shape of its path."""
    app.add_exception_handler(RequestError, _request_error)
    app.add_exception_handler(HTTPException, _http_exception)
    app.add_exception_handler(ClientDisconnect, _client_gone)
    app.add_exception_handler(Exception, _unexpected)


def shaped(error: RequestError, path: str) -> Response:
    """The error as the surface of ``path`` writes it."""
    return problem_response(error, path) if path.startswith(ADMIN_PREFIX) else error_response(error)


def _shaped(request: Request, error: RequestError) -> Response:
    note_error(request.scope, error.code)
    return shaped(error, request.scope["path"])


async def _request_error(request: Request, error: Exception) -> Response:
    return _shaped(request, error if isinstance(error, RequestError) else InternalError())


async def _http_exception(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    known: dict[int, RequestError] = {404: NotFound(), 405: MethodNotAllowed()}
    response = _shaped(request, known.get(status, InvalidRequest() if status < 500 else InternalError()))
    if isinstance(error, HTTPException) and error.headers:
        response.headers.update(error.headers)
    return response


async def _client_gone(request: Request, error: Exception) -> Response:
    return Unsent()


async def _unexpected(request: Request, error: Exception) -> Response:
    return _shaped(request, InternalError())
