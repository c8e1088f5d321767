"""The server process: the socket, the ready line, and the end."""

from __future__ import annotations

import asyncio
import logging
import socket
from pathlib import Path
from types import FrameType

import torch
import uvicorn
from starlette.applications import Starlette

from worker.engine.architecture import UnsupportedArchitectureError
from worker.engine.linear import KernelsName
from worker.engine.loop import EngineLoop, EngineSettings
from worker.engine.precision import UnsupportedFormatError
from worker.server.app import create_app
from worker.server.connection import bounded
from worker.server.roster import Roster
from worker.settings import WorkerSettings
from worker.trust import ModelRefusedError

log = logging.getLogger("worker.server")

_CLOSING_S = 3


def serve(settings: WorkerSettings, model_folder: Path) -> int:
    """Load the model, serve it until a signal, and return the exit status; 2 where it may not be loaded."""
    torch.set_num_threads(settings.threads)
    try:
        engine = EngineLoop.load(
            EngineSettings(
                model_path=model_folder,
                dtype=settings.dtype,
                weights=settings.weights,
                kernels=settings.kernels,
                num_threads=settings.threads,
                max_batch=settings.max_batch,
                max_context=settings.max_context,
                prefill_chunk=settings.prefill_chunk,
                policy=settings.scheduler,
                kv_tokens=settings.kv_tokens,
                prefix_tokens=settings.prefix_cache_tokens,
                max_draft=settings.max_draft,
            )
        )
    except (ModelRefusedError, UnsupportedArchitectureError, UnsupportedFormatError) as error:
        log.error("the worker cannot start: %s", error)
        return 2
    app = create_app(settings, engine)
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        http=bounded(settings),
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_CLOSING_S,
    )
    server = WorkerServer(config, app, settings, engine.kernels)
    server.run()
    return 0 if server.started else 1


class WorkerServer(uvicorn.Server):
    """On the first signal it is not ready any more but goes on serving what runs, for ``drain_s`` at most."""

    def __init__(
        self, config: uvicorn.Config, app: Starlette, settings: WorkerSettings, kernels: KernelsName
    ) -> None:
        super().__init__(config)
        self._roster: Roster = app.state.roster
        self._settings = settings
        self._kernels = kernels
        self._draining: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._loop = asyncio.get_running_loop()
        host, port = self.servers[0].sockets[0].getsockname()[:2]
        host = f"[{host}]" if ":" in host else host
        told = {
            "model": self._settings.model,
            "weight_format": self._settings.weights,
            "kernels": self._kernels,
        }
        log.info("ready", extra={"url": f"http://{host}:{port}", **told})

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._loop is None or self._draining is not None:
            super().handle_exit(sig, frame)
            return
        self._loop.call_soon_threadsafe(self._begin_draining)

    def _begin_draining(self) -> None:
        if self._draining is None:
            log.info("draining", extra={"drain_s": self._settings.drain_s})
            self._draining = asyncio.ensure_future(self._drain())

    async def _drain(self) -> None:
        await self._roster.drain(self._settings.drain_s)
        self.should_exit = True
