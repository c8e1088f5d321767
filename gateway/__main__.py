"""``python -m gateway``: the server process. Prints one JSON line when it serves, drains on SIGTERM."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import socket
import sys
from types import FrameType
from typing import cast

import uvicorn
from fastapi import FastAPI
from pydantic import SecretStr, ValidationError

from gateway.api.connection import bounded
from gateway.app import create_app
from gateway.settings import GatewaySettings
from gateway.telemetry.logs import configure_logging, log
from worker.redaction import secrets_in

CLOSING_S = 5
"""For the last bytes of answers that have ended, after the drain."""

logger = logging.getLogger("gateway")


class Server(uvicorn.Server):
    """Says when it serves; on SIGTERM or SIGINT lets open turns finish before it stops listening."""

    _loop: asyncio.AbstractEventLoop | None = None
    _drain: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._loop = asyncio.get_running_loop()
            # What was made so far stays: the collector need not walk over it again and again.
            gc.collect()
            gc.freeze()
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            name = f"[{host}]" if ":" in host else host
            log(logger, logging.INFO, "ready", url=f"http://{name}:{port}", pid=os.getpid())

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """First signal: drain. Second, or before it serves: leave at once."""
        if self._loop is None or self._drain is not None:
            super().handle_exit(sig, frame)
        else:
            self._loop.call_soon_threadsafe(self._begin_drain)

    def _begin_drain(self) -> None:
        if self._drain is None:
            self._drain = asyncio.create_task(self._drained(), name="drain")

    async def _drained(self) -> None:
        deps = cast(FastAPI, self.config.app).state.deps
        deps.drain.begin()
        log(logger, logging.INFO, "draining", open_turns=deps.drain.num_open)
        num_cut = await deps.drain.wait(deps.settings.drain_s)
        log(logger, logging.INFO, "drained", cut_off=num_cut)
        self.should_exit = True


def secrets_of(settings: GatewaySettings) -> tuple[str, ...]:
    """Return what must never stand in a log: every secret of the settings, of a URL its password."""
    values = (getattr(settings, name) for name in GatewaySettings.model_fields)
    return secrets_in(value.get_secret_value() for value in values if isinstance(value, SecretStr))


def main() -> int:
    """Serve until a signal. Returns 2 for settings that cannot be used, 3 where it cannot start."""
    configure_logging()
    try:
        settings = GatewaySettings()
    except ValidationError as error:
        log(logger, logging.ERROR, "settings_unusable", reason=str(error))
        return 2
    except OSError as error:  # a secret's file
        reason = f"{error.filename} cannot be read: {error.strerror}"
        log(logger, logging.ERROR, "settings_unusable", reason=reason)
        return 2
    configure_logging(secrets=secrets_of(settings))
    config = uvicorn.Config(
        create_app(settings),
        host=settings.host,
        port=settings.port,
        lifespan="on",
        http=bounded(settings),
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=CLOSING_S,
    )
    Server(config).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
