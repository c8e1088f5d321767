"""A worker to answer and a chooser to choose, both real, shared by the tests of this folder."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest

from gateway.evaluation.answering import AnsweringWorker
from gateway.evaluation.arms import Chooser, open_chooser


@pytest.fixture(scope="session")
def chooser() -> Iterator[Chooser]:
    with open_chooser() as opened:
        yield opened


@pytest.fixture
async def answering(worker_server: Any) -> AsyncIterator[AnsweringWorker]:
    """The session's worker, whose context is 1,024 tokens."""
    async with httpx.AsyncClient(base_url=worker_server.url, timeout=60.0) as client:
        yield await AnsweringWorker.connect(client, worker_server.process.pid)
