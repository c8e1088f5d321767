"""A worker that is gone, and one that refuses."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest

from gateway.errors import ReplayError, ReplayWorkerLost
from gateway.replay.recorded import Decoding
from gateway.replay.worker import decode_choice
from tests.conftest import RunningProcess


async def test_a_worker_that_is_gone_ends_a_batch(free_port: Callable[[], int]) -> None:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{free_port()}") as client:
        with pytest.raises(ReplayWorkerLost, match="failed"):
            await decode_choice(client, Decoding("/v1/completions", {"model": "m", "prompt": "a"}))


async def test_a_worker_that_refuses_one_turn_may_take_the_next(worker_server: RunningProcess) -> None:
    too_long = {"model": "SmolLM2-135M-Instruct", "prompt": "a " * 2_000, "max_tokens": 1}
    async with httpx.AsyncClient(base_url=worker_server.url, timeout=60.0) as client:
        with pytest.raises(ReplayError, match=r"refused the replay \(400\)") as refused:
            await decode_choice(client, Decoding("/v1/completions", too_long))
    assert not isinstance(refused.value, ReplayWorkerLost)
