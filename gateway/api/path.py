"""One path of the gateway: who serves it, and what is said of it in ``/openapi.json``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from gateway.errors import RequestError
from gateway.keys.scope import Scope

Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]
Method: TypeAlias = Literal["GET", "POST", "DELETE"]
Charge: TypeAlias = Literal["request", "turn"]
ADMIN = "/admin"


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
    scopes: frozenset[Scope] = frozenset({"admin"})
    """Of a key that may do this, any one of them; empty where no key is asked for."""
    charge: Charge | None = None
    """What it takes of a key's limits: a request, or what a turn does, which its endpoint takes itself."""
    response: Any = None
    """The type of a good answer: a model, a dataclass, or anything else that pydantic describes."""
    statuses: tuple[int, ...] = (200,)
    """That come with ``response``."""
    media_types: tuple[str, ...] = ("application/json",)
    """Of a good answer."""
    errors: tuple[type[RequestError], ...] = ()
    """Beside those that follow from method and prefix."""

    @property
    def is_admin(self) -> bool:
        return self.template == ADMIN or self.template.startswith(f"{ADMIN}/")
