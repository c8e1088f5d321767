"""The real encoder, loaded once for the whole suite, and a short way to prune with it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import pytest

from gateway.context.decide import PruneOptions, PruneQuery
from gateway.context.embed import EncoderSettings
from gateway.context.pruner import Pruner
from gateway.context.report import Document, PruneReport
from gateway.context.selector import Keep


class Prune(Protocol):
    """Prunes ``documents`` for ``question``; a token is a word here."""

    async def __call__(
        self,
        question: str,
        documents: Sequence[Document],
        *,
        keep: Keep = "balanced",
        token_budget: int | None = None,
    ) -> PruneReport: ...


async def count_words(texts: Sequence[str]) -> tuple[list[int], bool]:
    return [len(text.split()) for text in texts], False


@pytest.fixture(scope="session")
def pruner() -> Iterator[Pruner]:
    """A pruner that waits for the encoder however busy the machine is."""
    pruner = Pruner.open(EncoderSettings(precision="fp32"), timeout_s=150.0)
    yield pruner
    pruner.close()


@pytest.fixture
def prune(pruner: Pruner) -> Prune:
    async def run(
        question: str,
        documents: Sequence[Document],
        *,
        keep: Keep = "balanced",
        token_budget: int | None = None,
    ) -> PruneReport:
        options = PruneOptions(keep, token_budget)
        return await pruner.prune(PruneQuery(question, tuple(documents)), options, count_words)

    return run
