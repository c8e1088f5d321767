"""Which encoder judges a request. One does: vectors of two encoders cannot be compared."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from gateway.context.embed import Encoder
from gateway.context.report import Document
from gateway.errors import EncoderError

EncoderChoice: TypeAlias = Literal["auto", "local", "remote"]
"""auto: the local one where it knows the script of the question and of most documents, else the other."""


@dataclass(frozen=True, slots=True)
class Encoders:
    """The encoder of this process, and another server's where one is set up."""

    local: Encoder
    remote: Encoder | None = None

    def choose(self, choice: EncoderChoice, question: str, documents: Sequence[Document]) -> Encoder:
        """Return the encoder for this request. Raises EncoderError where it is not set up."""
        if choice == "remote" and self.remote is None:
            raise EncoderError("no remote encoder is set up")
        if choice == "local" or self.remote is None:
            return self.local
        if choice == "remote" or not self.local.can_read(question):
            return self.remote
        filled = [document.text for document in documents if document.text.strip()]
        num_read = sum(map(self.local.can_read, filled))
        return self.local if 2 * num_read >= len(filled) else self.remote

    async def warm(self) -> None:
        """Make all of them ready. Raises the first one's EncoderError after all have been tried."""
        results = await asyncio.gather(*(each.warm() for each in self._all), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    def close(self) -> None:
        """End the threads, for those who have no event loop."""
        for encoder in self._all:
            encoder.close()

    async def aclose(self) -> None:
        """End threads and connections, and what is still to be shared."""
        for encoder in self._all:
            await encoder.aclose()

    @property
    def _all(self) -> tuple[Encoder, ...]:
        return (self.local,) if self.remote is None else (self.local, self.remote)
