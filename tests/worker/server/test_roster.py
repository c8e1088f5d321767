"""Who may generate, and what becomes of them when the process or the engine ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import httpx
import pytest
from starlette.applications import Starlette

from worker.engine.loop import EngineLoop, EngineSettings
from worker.errors import DrainingError, GenerationFailedError, QueueFullError, WorkerError
from worker.models import BUNDLED_MODEL, resolve_model
from worker.server.app import create_app
from worker.server.roster import Roster
from worker.settings import WorkerSettings


@dataclass(eq=False)
class Guest:
    num_choices: int
    errors: list[WorkerError] = field(default_factory=list)

    def fail(self, error: WorkerError) -> None:
        self.errors.append(error)


async def until(condition: Callable[[], bool], timeout_s: float = 20.0) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s
        await asyncio.sleep(0.01)


def test_choices_are_counted_and_those_beyond_the_bound_are_refused() -> None:
    roster = Roster(max_choices=4)
    first, second = Guest(3), Guest(1)
    roster.join(first)
    roster.join(second)
    with pytest.raises(QueueFullError):
        roster.join(Guest(1))
    roster.leave(first)
    roster.leave(first)
    roster.join(Guest(3))
    assert roster.num_choices == 4


async def test_draining_waits_for_those_inside_and_lets_nobody_in() -> None:
    roster = Roster(max_choices=4)
    guest = Guest(1)
    roster.join(guest)
    draining = asyncio.ensure_future(roster.drain(timeout_s=60.0))
    await until(lambda: roster.is_draining)
    with pytest.raises(DrainingError):
        roster.join(Guest(1))
    roster.leave(guest)
    await asyncio.wait_for(draining, 5.0)
    assert guest.errors == []


async def test_whoever_outstays_the_draining_is_failed() -> None:
    roster = Roster(max_choices=4)
    guest = Guest(1)
    roster.join(guest)
    draining = asyncio.ensure_future(roster.drain(timeout_s=0.01))
    await until(lambda: bool(guest.errors))
    roster.leave(guest)
    await asyncio.wait_for(draining, 5.0)
    assert [type(error) for error in guest.errors] == [DrainingError]


async def test_when_the_engine_dies_nobody_waits_for_it_for_ever() -> None:
    settings = WorkerSettings(port=0, dtype="fp32", threads=1, max_batch=2, max_context=512)
    engine = EngineLoop.load(
        EngineSettings(resolve_model(BUNDLED_MODEL), dtype="fp32", max_batch=2, max_context=512)
    )
    app: Starlette = create_app(settings, engine)
    request = {"model": BUNDLED_MODEL, "prompt": "Once", "max_tokens": 400, "ignore_eos": True}
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://worker", timeout=60) as client,
    ):
        waiting = asyncio.ensure_future(client.post("/v1/completions", json=request))
        await until(lambda: engine.stats().tokens > 0)
        engine.stop()
        response = await asyncio.wait_for(waiting, 10.0)
        assert response.status_code == 500
        assert response.json()["error"]["code"] == GenerationFailedError.code
        assert (await client.get("/readyz")).status_code == 503
        again = await client.post("/v1/completions", json=request)
        assert again.json()["error"]["code"] == GenerationFailedError.code
