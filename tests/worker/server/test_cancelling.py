"""The client's leaving frees the slot within half a second, whatever the request was doing.

The half second is the worker's processor time: while it decodes, that is the clock's on a quiet machine, and
on a busy one it still says how much was done for nobody.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from redis import Redis

if TYPE_CHECKING:
    from tests.conftest import RunningProcess, WaitUntil
    from tests.worker.server.conftest import ReadMetric

LIMIT_S = 0.5


def endless(model: str, **fields: Any) -> dict[str, Any]:
    """A request that would decode for a long time."""
    return {
        "model": model,
        "prompt": "Once upon a time",
        "max_tokens": 900,
        "ignore_eos": True,
        "stream": True,
        **fields,
    }


@pytest.fixture
def is_idle(worker_server: RunningProcess, read_metric: ReadMetric) -> Callable[[], bool]:
    def check() -> bool:
        names = ("ng_worker_requests_running", "ng_worker_requests_waiting")
        return sum(read_metric(worker_server.url, name) for name in names) == 0

    return check


def seconds_until(condition: Callable[[], bool], worker: RunningProcess, wait_until: WaitUntil) -> float:
    started_s = worker.cpu_s()
    wait_until(condition)
    return worker.cpu_s() - started_s


async def leave_once(
    url: str, request: dict[str, Any], has_come_far: Callable[[], bool], wait_until: WaitUntil
) -> None:
    """Send a request on a connection of its own, and close that when ``has_come_far`` says so."""
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        call = asyncio.ensure_future(client.post("/v1/completions", json=request))
        await asyncio.to_thread(wait_until, has_come_far)
        call.cancel()
        with suppress(asyncio.CancelledError):
            await call


@pytest.mark.parametrize("choices", [1, 3])
def test_leaving_in_the_middle_of_a_stream(
    client: httpx.Client,
    worker_server: RunningProcess,
    model_name: str,
    is_idle: Callable[[], bool],
    wait_until: WaitUntil,
    choices: int,
) -> None:
    wait_until(is_idle)
    with client.stream("POST", "/v1/completions", json=endless(model_name, n=choices)) as response:
        chunks = response.iter_bytes()  # kept: a collected iterator closes the connection
        assert next(chunks)
        assert not is_idle()
    assert seconds_until(is_idle, worker_server, wait_until) < LIMIT_S


async def test_leaving_a_call_that_is_not_streamed(
    worker_server: RunningProcess,
    model_name: str,
    is_idle: Callable[[], bool],
    read_metric: ReadMetric,
    wait_until: WaitUntil,
) -> None:
    url, request = worker_server.url, endless(model_name, stream=False)

    def num_tokens() -> float:
        return read_metric(url, "ng_worker_engine_tokens_total")

    wait_until(is_idle)
    before = num_tokens()
    await leave_once(url, request, lambda: num_tokens() > before + 2, wait_until)
    assert await asyncio.to_thread(seconds_until, is_idle, worker_server, wait_until) < LIMIT_S


@pytest.mark.parametrize("stream", [True, False])
async def test_leaving_before_the_first_token(
    worker_server: RunningProcess,
    model_name: str,
    is_idle: Callable[[], bool],
    read_metric: ReadMetric,
    wait_until: WaitUntil,
    stream: bool,
) -> None:
    url = worker_server.url
    request = endless(model_name, prompt=[5] * 900, max_tokens=100, stream=stream)

    def num_tokens() -> float:
        return read_metric(url, "ng_worker_engine_tokens_total")

    wait_until(is_idle)
    before = num_tokens()
    await leave_once(url, request, lambda: not is_idle(), wait_until)
    assert await asyncio.to_thread(seconds_until, is_idle, worker_server, wait_until) < LIMIT_S
    assert num_tokens() == before, "it had left before any token"


async def test_leaving_the_queue_and_the_next_one_is_served(
    one_slot_worker: RunningProcess, model_name: str, read_metric: ReadMetric, wait_until: WaitUntil
) -> None:
    url = one_slot_worker.url

    def waiting() -> float:
        return read_metric(url, "ng_worker_requests_waiting")

    def running() -> float:
        return read_metric(url, "ng_worker_requests_running")

    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        async with client.stream("POST", "/v1/completions", json=endless(model_name)) as holder:
            chunks = holder.aiter_bytes()
            await anext(chunks)
            await leave_once(url, endless(model_name), lambda: waiting() == 1, wait_until)
            left_s = await asyncio.to_thread(
                seconds_until, lambda: waiting() == 0, one_slot_worker, wait_until
            )
            assert left_s < LIMIT_S
            assert running() == 1
        # litellm#27955: the only slot was cancelled; the next request must get it.
        answer = await client.post("/v1/completions", json=endless(model_name, max_tokens=3, stream=False))
    assert answer.json()["usage"]["completion_tokens"] == 3


async def test_a_full_queue_is_a_429_with_retry_after_also_for_a_stream(
    one_slot_worker: RunningProcess, model_name: str, read_metric: ReadMetric, wait_until: WaitUntil
) -> None:
    url = one_slot_worker.url
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        async with client.stream("POST", "/v1/completions", json=endless(model_name)) as holder:
            chunks = holder.aiter_bytes()
            await anext(chunks)
            queued = asyncio.ensure_future(
                client.post("/v1/completions", json=endless(model_name, max_tokens=2, stream=False))
            )
            await asyncio.to_thread(wait_until, lambda: read_metric(url, "ng_worker_requests_waiting") == 1)
            refused = await client.post("/v1/completions", json=endless(model_name))
            assert refused.status_code == 429
            assert refused.headers["retry-after"] == "1"
            assert refused.json()["error"]["code"] == "queue_full"
            assert refused.json()["error"]["type"] == "rate_limit_error"
        assert (await queued).json()["usage"]["completion_tokens"] == 2


def test_the_trace_of_who_left_is_marked_cancelled(
    client: httpx.Client, valkey_url: str, model_name: str, wait_until: WaitUntil
) -> None:
    turn_id = uuid.uuid4().hex
    controls = {"gravity": json.dumps({"trace": {"turn_id": turn_id}})}
    with client.stream("POST", "/v1/completions", json=endless(model_name, vllm_xargs=controls)) as response:
        next(response.iter_bytes())

    def last_entry() -> dict[bytes, bytes]:
        with Redis.from_url(valkey_url) as redis:
            found: Any = redis.xrevrange(f"ng:trace:{turn_id}", count=1)
        return found[0][1] if found else {}

    wait_until(lambda: b"end" in last_entry())
    assert last_entry()[b"end"] == b"cancelled"
    assert 1 <= int(last_entry()[b"n"]) < 900


def test_a_silent_stream_is_kept_alive_and_its_held_text_is_released(
    one_slot_worker: RunningProcess, tokenizer: Any, model_name: str
) -> None:
    # The text is all held back, since it may be the beginning of the stop string.
    [token_id] = tokenizer.encode(" gravity", add_special_tokens=False)
    request = {
        "model": model_name,
        "prompt": "What pulls?",
        "temperature": 0,
        "max_tokens": 40,
        "stream": True,
        "logit_bias": {str(token_id): 100},
        "stop": " gravity" * 41,
    }
    response = httpx.post(f"{one_slot_worker.url}/v1/completions", json=request, timeout=60)
    frames = response.text.split("\n\n")
    assert ": ping" in frames
    data = [json.loads(f[6:]) for f in frames if f.startswith("data: {")]
    assert "".join(chunk["choices"][0]["text"] for chunk in data) == " gravity" * 40
    assert data[-1]["choices"][0]["finish_reason"] == "length"
