"""What every answer has to be, whatever the request was."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import httpx

from tests.openapi import answer_problems
from tests.servers.gateway import Gateway

TIMEOUT_S = 20.0
"""Far above what any answer takes; beyond it, it counts as none."""


@dataclass(frozen=True, slots=True)
class Attacked:
    """The gateway, a client of it, and what it says of itself."""

    gateway: Gateway
    client: httpx.Client
    document: dict[str, Any]

    def judge(self, method: str, template: str, answer: httpx.Response) -> None:
        """No fault of ours, a status that is described, and its shape."""
        said = f"{method} {template}: {answer.status_code} {answer.text[:300]}"
        assert answer.status_code < 500 or template == "/readyz", said
        assert answer.headers["x-request-id"]
        kind = answer.headers.get("content-type", "").partition(";")[0]
        if kind in ("text/event-stream", "text/plain"):
            assert answer.status_code == 200, said
            return
        content = answer.json()
        if answer.status_code >= 400:
            check_error_shape(answer)
        problems = answer_problems(self.document, method.upper(), template, answer.status_code, content)
        assert problems == [], said


def check_error_shape(answer: httpx.Response) -> None:
    """OpenAI's object, or problem details under /admin: these members and no others."""
    content = answer.json()
    if answer.headers["content-type"] == "application/problem+json":
        assert {"type", "title", "status", "detail", "instance", "code"} <= content.keys()
        assert content["status"] == answer.status_code
        return
    assert content.keys() == {"error"}
    error = content["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert isinstance(error["message"], str)
    assert error["message"]
    assert isinstance(error["param"], str | None)
