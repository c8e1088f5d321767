"""The call to ``/v1/prune`` that every adapter makes, with httpx and pydantic and nothing else of ours."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, Literal

import httpx
from pydantic import BaseModel, ConfigDict, Field, SecretStr

PATH = "/v1/prune"

logger = logging.getLogger(__name__)


class GravityError(Exception):
    """The gateway refused or could not be reached; the message is the gateway's own, or says what happened.

    ``status`` is None without an answer; ``code`` and ``param`` are those of the answer's error object.
    """

    def __init__(
        self, message: str, *, status: int | None = None, code: str | None = None, param: str | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.code = code
        self.param = param


@dataclass(frozen=True, slots=True)
class Passage:
    """One document as it is sent."""

    text: str
    title: str = ""
    id: str | None = None

    def as_sent(self) -> dict[str, str]:
        """What cannot be sent as it is (half of a surrogate pair, as some PDF readers leave) is replaced."""
        fields = {"text": self.text, "title": self.title, "id": self.id or ""}
        plain = {name: value.encode("utf-8", "replace").decode() for name, value in fields.items()}
        return {name: value for name, value in plain.items() if value or name == "text"}


class Kept(BaseModel):
    """One document that stays."""

    index: int
    """Its position among those sent."""
    score: float
    """Keep-probability in [0, 1]."""
    reason: str


class _Answer(BaseModel):
    documents: list[Kept]


class Pruning(BaseModel):
    """Where the gateway is and what is asked of it. What is None is the task's to say."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    base_url: str = "http://127.0.0.1:8080"
    api_key: SecretStr | None = Field(default=None, exclude=True)
    """Sent as a bearer token, for a proxy that asks for one. Never written down with the rest."""
    task: str | None = None
    keep: Literal["balanced", "safe"] | float | None = None
    token_budget: int | None = None
    model: str | None = None
    """Whose tokens ``token_budget`` counts, if a worker of the gateway has it; else they are estimates."""
    order: Literal["as_sent", "relevance", "ends"] | None = None
    timeout_s: Annotated[float, Field(gt=0.0)] = 30.0
    on_error: Literal["raise", "keep_all"] = "raise"
    """What becomes of the documents where the gateway cannot prune them."""
    http_client: httpx.Client | None = Field(default=None, exclude=True, repr=False)
    """A client of the caller's, which the caller closes; without one each call opens its own."""
    async_http_client: httpx.AsyncClient | None = Field(default=None, exclude=True, repr=False)

    def kept(self, query: str, passages: Sequence[Passage]) -> list[Kept] | None:
        """Return what stays, in the asked order; None for all of it, where ``on_error`` says so.

        Raises GravityError.
        """
        call = self._call(query, passages)
        try:
            if self.http_client is not None:
                return _read(self.http_client.request(**call))
            with httpx.Client(verify=_tls()) as client:
                return _read(client.request(**call))
        except _FAILURES as error:
            self._give_up(error)
            return None

    async def akept(self, query: str, passages: Sequence[Passage]) -> list[Kept] | None:
        """Do what ``kept`` does without blocking the event loop."""
        call = self._call(query, passages)
        try:
            if self.async_http_client is not None:
                return _read(await self.async_http_client.request(**call))
            async with httpx.AsyncClient(verify=_tls()) as client:
                return _read(await client.request(**call))
        except _FAILURES as error:
            self._give_up(error)
            return None

    def _call(self, query: str, passages: Sequence[Passage]) -> dict[str, Any]:
        asked = {name: getattr(self, name) for name in ("task", "keep", "token_budget", "model", "order")}
        body = {name: value for name, value in asked.items() if value is not None}
        headers = {}
        if self.api_key is not None:
            headers["Authorization"] = f"Bearer {self.api_key.get_secret_value()}"
        return {
            "method": "POST",
            "url": self.base_url.rstrip("/").removesuffix("/v1") + PATH,
            "json": {"query": query, "documents": [each.as_sent() for each in passages], **body},
            "headers": headers,
            "timeout": self.timeout_s,
        }

    def _give_up(self, error: Exception) -> None:
        """Go on with everything where that was asked for. Raises GravityError where it was not."""
        if not isinstance(error, GravityError):
            error = GravityError(
                f"The gateway at {self.base_url} did not answer: {error or type(error).__name__}"
            )
        if self.on_error == "raise":
            raise error
        logger.warning("All documents are kept: %s", error)


_FAILURES = (httpx.HTTPError, httpx.InvalidURL, GravityError)


def _read(response: httpx.Response) -> list[Kept]:
    """Return the kept documents of an answer. Raises GravityError, with the gateway's words for a refusal."""
    try:
        answer = response.json()
        if response.is_success:
            return _Answer.model_validate(answer).documents
        error = answer["error"]
        told = {"code": error.get("code"), "param": error.get("param")}
        raise GravityError(str(error["message"]), status=response.status_code, **told)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        message = f"The answer is not the gateway's (status {response.status_code})."
        raise GravityError(message, status=response.status_code) from error


@lru_cache(maxsize=1)
def _tls() -> ssl.SSLContext:
    """Reading the certificates takes longer than a call."""
    return httpx.create_ssl_context()
