"""How much one request may hold, beside its bytes (``guard.py``) and its nesting (``schema.py``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gateway.context.report import Document
from gateway.errors import InvalidRequest
from gateway.settings import GatewaySettings


def require_bounds(body: Mapping[str, Any], documents: Sequence[Document], settings: GatewaySettings) -> None:
    """Raise InvalidRequest, naming the field, for too many messages or documents, or one that is too long."""
    if len(body.get("messages") or ()) > settings.max_messages:
        raise InvalidRequest(f"messages has more than {settings.max_messages} entries.", param="messages")
    if len(documents) > settings.max_documents:
        raise InvalidRequest(f"documents has more than {settings.max_documents} entries.", param="documents")
    for index, document in enumerate(documents):
        if len(document.text) > settings.max_document_chars:
            raise InvalidRequest(
                f"documents[{index}] has more than {settings.max_document_chars} characters.",
                param=f"documents[{index}]",
            )
