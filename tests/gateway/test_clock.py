"""A system clock that jumps moves timestamps alone: no duration, no timeout and no lifetime in Redis."""

from __future__ import annotations

import itertools
from dataclasses import replace

import httpx
import orjson
from redis.asyncio import Redis

from gateway.app import create_app
from gateway.settings import GatewaySettings
from tests.servers.gateway import CHAT, PLAIN, REPOSITORY, events_of
from tests.servers.upstream import Upstream, chunk, events

JUMPS = (1_800_000_000.0, 5.0, 4_000_000_000.0, 1_700_000_000.0)
TTL_S = 3_600


async def test_turns_are_served_and_recorded_under_a_clock_that_jumps(
    upstream: Upstream, valkey_url: str
) -> None:
    upstream.plays(events(chunk("some"), chunk(finish="stop")))
    settings = GatewaySettings(
        workers=(upstream.url,),
        redis_url=valkey_url,
        config_dir=REPOSITORY / "configs",
        preload_encoder=False,
        record_ttl_s=TTL_S,
    )
    app = create_app(settings)
    moments = itertools.cycle(JUMPS)
    async with app.router.lifespan_context(app):
        deps = app.state.deps = replace(app.state.deps, clock=lambda: next(moments))
        await deps.pool.probe(deps.pool.workers[0])
        transport = httpx.ASGITransport(app, client=("127.0.0.1", 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            answers = [await client.post(CHAT, json=PLAIN[CHAT] | {"stream": True}) for _ in range(4)]
    # The lifespan's end has written what was waiting.
    assert [answer.status_code for answer in answers] == [200] * 4
    assert all(events_of(answer.content)[-1] == "[DONE]" for answer in answers)
    turns = [answer.headers["x-gravity-turn-id"] for answer in answers]
    async with Redis.from_url(valkey_url) as redis:
        records = [orjson.loads(await redis.get(f"ng:turn:{turn}") or b"") for turn in turns]
        lifetimes_s = [await redis.ttl(f"ng:turn:{turn}") for turn in turns]
    assert {record["received_at"] for record in records} <= set(JUMPS)
    assert len({record["received_at"] for record in records}) > 1
    assert all(0.0 <= record["outcome"]["latency_s"] < 60.0 for record in records)
    assert all(0 < lifetime_s <= TTL_S for lifetime_s in lifetimes_s)
