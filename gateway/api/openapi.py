"""``GET /openapi.json``: the table of routes as OpenAPI 3.1, with the models that check the requests."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from http import HTTPStatus
from importlib.metadata import version
from itertools import groupby
from typing import Any

import orjson
from pydantic import TypeAdapter
from starlette.requests import Request
from starlette.responses import Response

from gateway.api.answer_schema import Error, Problem
from gateway.api.path import Endpoint, Path
from gateway.errors import (
    AuthenticationFailed,
    HeadTooLarge,
    InsufficientScope,
    InternalError,
    InvalidJson,
    InvalidRequest,
    NotFound,
    RateLimitExceeded,
    RequestError,
    RequestTimedOut,
    RequestTooLarge,
    UrlTooLong,
)
from gateway.keys.scope import EVERY

OPENAPI = "3.1.0"
REFERENCE = "#/components/schemas/{model}"
KEY_SCHEME = "key"
OF_ANY_REQUEST = (InvalidRequest, RequestTimedOut, UrlTooLong, HeadTooLarge)
"""What connection.py answers before there is a request."""
SCHEMES = {
    KEY_SCHEME: {
        "type": "http",
        "scheme": "bearer",
        "description": "A key of `gravity key create`, with one of the scopes named; admin is all of them. "
        "NG_ADMIN_KEY opens everything, NG_CONFIG_KEY /admin/config, NG_READ_KEY what only reads. While no "
        "key is configured none is needed on the loopback address, and from elsewhere nothing is open.",
    }
}


def serving(paths: Callable[[], Sequence[Path]]) -> Endpoint:
    """Return the endpoint that answers with the description of ``paths``, its own among them."""

    @cache  # it takes a twentieth of a second, for which nobody should make others wait
    def content() -> bytes:
        return orjson.dumps(described(paths()))

    async def openapi(request: Request) -> Response:
        """This description, in OpenAPI 3.1."""
        return Response(await asyncio.to_thread(content), media_type="application/json")

    return openapi


def described(paths: Sequence[Path]) -> dict[str, Any]:
    """Return the OpenAPI document of ``paths``."""
    schemas = Schemas(paths)
    items: dict[str, Any] = {}
    for path in paths:
        items.setdefault(plain(path.template), {})[path.method.lower()] = _operation(path, schemas)
    return {
        "openapi": OPENAPI,
        "info": {
            "title": "narrative-gravity",
            "version": version("narrative-gravity"),
            "description": "Prunes what a retriever found, steers decoding, and records every step.",
        },
        "paths": items,
        "components": {"schemas": schemas.definitions, "securitySchemes": SCHEMES},
    }


def plain(template: str) -> str:
    """The template without the converters that only the router knows: ``{model:path}`` is ``{model}``."""
    return re.sub(r"\{(\w+):\w+\}", r"{\1}", template)


class Schemas:
    """The JSON schemas of all models, made together so that equal parts are one definition."""

    def __init__(self, paths: Sequence[Path]) -> None:
        described = [(model, "validation") for path in paths for model in (path.request, path.query) if model]
        described += [(path.response, "serialization") for path in paths if path.response is not None]
        described += [(Error, "serialization"), (Problem, "serialization")]
        unique = {repr((kind, mode)): (kind, mode) for kind, mode in described}
        made, shared = TypeAdapter.json_schemas(
            [(name, mode, TypeAdapter(kind)) for name, (kind, mode) in unique.items()],  # type: ignore[misc]
            ref_template=REFERENCE,
        )
        self._made = {name: schema for (name, _), schema in made.items()}
        self.definitions: dict[str, Any] = shared.get("$defs", {})

    def of_input(self, kind: Any) -> dict[str, Any]:
        return self._made[repr((kind, "validation"))]

    def of_output(self, kind: Any) -> dict[str, Any]:
        return self._made[repr((kind, "serialization"))]

    def resolved(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Return the definition that ``schema`` refers to, or itself."""
        name = schema.get("$ref", "").rpartition("/")[2]
        found: dict[str, Any] = self.definitions[name] if name else schema
        return found


def _operation(path: Path, schemas: Schemas) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": f"{path.method.lower()}{re.sub(r'[^a-z0-9]+', '_', path.template.lower())}".rstrip(
            "_"
        ),
        "summary": path.summary or _first_line(path.endpoint),
        "tags": list(path.tags) or [_default_tag(path)],
        "parameters": list(_parameters(path, schemas)),
        "responses": {**dict(_bad(path, schemas)), **_good(path, schemas)},
    }
    if path.request is not None:
        content = {"application/json": {"schema": schemas.of_input(path.request)}}
        operation["requestBody"] = {"required": True, "content": content}
    if path.scopes:
        named = [[scope] for scope in sorted(path.scopes)] if path.scopes != EVERY else [[]]
        operation["security"] = [*({KEY_SCHEME: each} for each in named), {}]
    return operation


def _first_line(endpoint: Endpoint) -> str:
    line = (endpoint.__doc__ or "").strip().partition("\n")[0]
    return re.sub(r"^``.*?``[:.]?\s*", "", line).replace("``", "") or endpoint.__name__.replace("_", " ")


def _default_tag(path: Path) -> str:
    if path.is_admin:
        return "admin"
    return "inference" if path.method == "POST" or path.template.startswith("/v1/") else "operations"


def _parameters(path: Path, schemas: Schemas) -> Iterator[dict[str, Any]]:
    for name in re.findall(r"\{(\w+)", path.template):
        yield {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
    if path.query is not None:
        model = schemas.resolved(schemas.of_input(path.query))
        for name, schema in model["properties"].items():
            is_required = name in model.get("required", ())
            yield {"name": name, "in": "query", "required": is_required, "schema": schema}
    for header in path.headers:
        meaning = {"description": header.meaning, "schema": {"type": "string"}}
        yield {"name": header.name, "in": "header", "required": False, **meaning}


def _good(path: Path, schemas: Schemas) -> dict[str, Any]:
    schema = {} if path.response is None else schemas.of_output(path.response)
    content: dict[str, Any] = {
        media_type: {"schema": schema if media_type == "application/json" else {"type": "string"}}
        for media_type in path.media_types
    }
    return {
        str(status): {"description": f"{HTTPStatus(status).phrase}.", "content": content}
        for status in path.statuses
    }


def _bad(path: Path, schemas: Schemas) -> Iterator[tuple[str, dict[str, Any]]]:
    """One answer a status; its description names the codes that it may have."""
    media_type, shape = (
        ("application/problem+json", Problem) if path.is_admin else ("application/json", Error)
    )
    content = {media_type: {"schema": schemas.of_output(shape)}}
    errors = sorted(_errors(path), key=lambda error: (error.status, error.code))
    for status, same in groupby(errors, key=lambda error: error.status):
        codes = ", ".join(error.code for error in same)
        yield str(status), {"description": f"{HTTPStatus(status).phrase}: {codes}.", "content": content}


def _errors(path: Path) -> set[type[RequestError]]:
    errors: set[type[RequestError]] = {InternalError, *OF_ANY_REQUEST, *path.errors}
    if path.request is not None:
        errors |= {InvalidRequest, InvalidJson, RequestTooLarge}
    if path.scopes:
        errors |= {AuthenticationFailed, InsufficientScope}
    if path.charge is not None:
        errors |= {RateLimitExceeded}
    if "{" in path.template:
        errors |= {NotFound}
    return errors
