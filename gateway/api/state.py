"""How an endpoint gets at what ``gateway/app.py`` composed."""

from __future__ import annotations

from typing import Any, cast

from starlette.requests import Request

from gateway.flow.deps import Deps


def deps_of(request: Request) -> Deps:
    return cast(Deps, request.app.state.deps)


def note_error(scope: Any, code: str) -> None:
    """Leave an error's code for the metrics."""
    scope["gravity.error_code"] = code
