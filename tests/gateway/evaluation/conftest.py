"""Labelled requests, a worker to answer and a chooser to choose, both real, for the tests of this folder."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.evaluation.answering import AnsweringWorker
from gateway.evaluation.arms import Chooser, open_chooser
from tests.gateway.evaluation.harbour import REQUESTS


@pytest.fixture(scope="session")
def chooser() -> Iterator[Chooser]:
    with open_chooser() as opened:
        yield opened


@pytest.fixture
async def answering(worker_server: Any) -> AsyncIterator[AnsweringWorker]:
    """The session's worker, whose context is 1,024 tokens."""
    async with httpx.AsyncClient(base_url=worker_server.url, timeout=60.0) as client:
        yield await AnsweringWorker.connect(client, worker_server.process.pid)


@pytest.fixture(scope="session")
def labelled_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``REQUESTS`` as JSON lines."""
    file = tmp_path_factory.mktemp("labelled") / "small.jsonl"
    file.write_text("".join(json.dumps(request) + "\n" for request in REQUESTS))
    return file
