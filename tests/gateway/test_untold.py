"""What may not be read may not be rebuilt either: the steps of a turn whose text is not kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx
import pytest
from redis import Redis

from tests.servers.gateway import CHAT, StartGateway
from worker.protocol import unpack_steps

if TYPE_CHECKING:
    from tests.conftest import RunningProcess, WaitUntil


@pytest.mark.parametrize("retention", ["hashed", "none"])
def test_the_worker_writes_no_token_where_the_text_may_not_be_kept(
    worker_server: RunningProcess,
    start_gateway: StartGateway,
    valkey_url: str,
    wait_until: WaitUntil,
    retention: str,
) -> None:
    gateway = start_gateway(worker_server.url, text_retention=retention)
    body = {
        "model": "SmolLM2-135M-Instruct",
        "messages": [{"role": "user", "content": "Say hello."}],
        "max_tokens": 3,
        "ignore_eos": True,
    }
    answer = httpx.post(gateway.url + CHAT, json=body, timeout=60.0)
    assert answer.status_code == 200, answer.text
    key = f"ng:trace:{answer.headers['x-gravity-turn-id']}"
    with Redis.from_url(valkey_url) as redis:

        def entries() -> list[Any]:
            return [fields for _, fields in redis.xrange(key)]

        wait_until(lambda: any(b"end" in fields for fields in entries()))
        steps = [step for fields in entries() if b"end" not in fields for step in unpack_steps(fields)[2]]
    assert [step.token_id for step in steps] == [-1, -1, -1]
    assert all(step.entropy_nats > 0.0 for step in steps)
