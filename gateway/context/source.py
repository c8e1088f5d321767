"""What makes encodings: a model on a thread of this process, or another server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from gateway.context.encoding import Encoding


class EncodingSource(Protocol):
    """Encodes texts without remembering any."""

    @property
    def dimension(self) -> int | None:
        """Length of the vectors; None before ``warm``."""

    @property
    def fingerprint(self) -> str:
        """Differs between sources whose vectors cannot be compared; known after ``warm``."""

    def start(self) -> None:
        """Begin to get ready, without waiting."""

    async def warm(self) -> None:
        """Be ready. Raises EncoderError."""

    async def encode(self, texts: Sequence[str]) -> tuple[list[Encoding], float]:
        """Return the encodings of all ``texts`` and the milliseconds it took. Raises EncoderError."""

    def close(self) -> None:
        """End what needs no event loop."""

    async def aclose(self) -> None:
        """End everything."""
