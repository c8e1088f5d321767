"""A gateway of its own for whoever means it harm: its configuration is a copy that may be written to."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiohttp import web

from tests.hostile.judge import TIMEOUT_S, Attacked
from tests.servers.gateway import REPOSITORY, serving, until
from tests.servers.upstream import Loop, Script, Upstream, chunk, events, whole

WHOLE = Script([whole("ok")], content_type="application/json")
COMPLETION = Script([whole("ok", object="text_completion")], content_type="application/json")
STREAM = Script([events(chunk("ok"), chunk(finish="stop"))])


class Obliging(Upstream):
    """A worker that answers whatever it is asked, in the form that was asked for."""

    async def _play(self, request: web.Request, script: Script) -> web.StreamResponse:
        asked: dict[str, Any] = await request.json()
        if asked.get("stream") is True:
            return await super()._play(request, STREAM)
        return await super()._play(request, COMPLETION if "prompt" in asked else WHOLE)


@pytest.fixture(scope="session")
def attacked(
    valkey_url: str, server_loop: Loop, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Attacked]:
    configs: Path = tmp_path_factory.mktemp("hostile") / "configs"
    shutil.copytree(REPOSITORY / "configs", configs)
    upstream = Obliging(server_loop, is_native=True)
    upstream.plays(WHOLE)
    upstream.start()
    settings: dict[str, Any] = {
        "redis_url": valkey_url.removesuffix("/0") + "/9",
        "config_dir": configs,
        "breaker_failures": 100,
        "max_body_bytes": 256 * 1024,
    }
    with (
        serving(upstream.url, **settings) as gateway,
        httpx.Client(base_url=gateway.url, timeout=TIMEOUT_S, follow_redirects=False) as client,
    ):
        until(lambda: gateway.deps.pool.has_ready_worker)
        client.post("/v1/rerank", json={"query": "q", "documents": ["a"]}, timeout=120.0).raise_for_status()
        yield Attacked(gateway, client, client.get("/openapi.json").json())
    upstream.stop()
