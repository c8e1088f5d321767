"""One path of the gateway: who serves it, and what is said of it in ``/openapi.json``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from gateway.errors import RequestError

Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]
Method: TypeAlias = Literal["GET", "POST", "DELETE"]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A header that the endpoint reads. Path parameters are in the template, the query has a model."""

    name: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Path:
    """A row of the table of routes. What only describes may be left out."""

    method: Method
    template: str
    endpoint: Endpoint
    summary: str = ""
    """One line; by default the first of the endpoint's docstring."""
    tags: tuple[str, ...] = ()
    request: type[BaseModel] | None = None
    """The body's model."""
    query: type[BaseModel] | None = None
    """The query string's model, a field a parameter."""
    headers: tuple[Parameter, ...] = ()
    response: Any = None
    """The type of a good answer: a model, a dataclass, or anything else that pydantic describes."""
    statuses: tuple[int, ...] = (200,)
    """That come with ``response``."""
    media_types: tuple[str, ...] = ("application/json",)
    """Of a good answer."""
    errors: tuple[type[RequestError], ...] = ()
    """Beside those that follow from method and prefix."""
