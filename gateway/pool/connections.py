"""The connections to one worker: those that are free, and new ones."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Sequence
from urllib.parse import urlsplit

from aiohappyeyeballs import start_connection

from gateway.addresses import Network
from gateway.errors import WorkerUnreachable
from gateway.pool.connector import checked_sockets
from gateway.pool.exchange import Connection

KEEPALIVE_S = 3.0
"""Shorter than the 5 s of uvicorn, so that a connection is not used while the worker closes it."""
HAPPY_EYEBALLS_S = 0.25
"""RFC 8305: how long one address may take before the next is tried beside it."""


class Connections:
    """As many as there are requests at once; one that is free is used again within ``KEEPALIVE_S``."""

    def __init__(self, url: str, connect_s: float, allowed: Sequence[Network]) -> None:
        """``url`` is http(s)://HOST with or without port and path."""
        parts = urlsplit(url)
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._tls = _tls() if parts.scheme == "https" else None
        self._connect_s = connect_s
        self._sockets = checked_sockets(allowed)
        self._all: set[Connection] = set()
        self._free: list[tuple[float, Connection]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    def free(self) -> Connection | None:
        """Return the free connection that was used last, if there is one."""
        oldest_s = asyncio.get_running_loop().time() - KEEPALIVE_S
        while self._free:
            since_s, connection = self._free.pop()
            if since_s > oldest_s and connection.is_usable:
                return connection
            connection.abort()
        return None

    async def new(self) -> Connection:
        """Open a connection. Raises WorkerUnreachable."""
        if self._is_closed:
            raise WorkerUnreachable
        try:
            async with asyncio.timeout(self._connect_s):
                return await self._open()
        except OSError as error:  # a name that is none, an address out of bounds, TimeoutError, a certificate
            raise WorkerUnreachable from error

    def close(self) -> None:
        """End all of them, busy or not."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        for connection in list(self._all):
            connection.abort()

    async def _open(self) -> Connection:
        loop = asyncio.get_running_loop()
        places = await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        opened = await start_connection(
            places, happy_eyeballs_delay=HAPPY_EYEBALLS_S, interleave=1, socket_factory=self._sockets
        )
        try:
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            name = self._host if self._tls else None
            _, connection = await loop.create_connection(
                self._make, sock=opened, ssl=self._tls, server_hostname=name
            )
        except BaseException:
            opened.close()
            raise
        if connection.is_usable:
            self._all.add(connection)
        return connection

    def _make(self) -> Connection:
        return Connection(self._freed, self._all.discard)

    def _freed(self, connection: Connection) -> None:
        if self._is_closed:
            connection.abort()
            return
        loop = asyncio.get_running_loop()
        self._free.append((loop.time(), connection))
        if self._timer is None:
            self._timer = loop.call_later(KEEPALIVE_S, self._expire)

    def _expire(self) -> None:
        """End what nobody has used for long."""
        loop = asyncio.get_running_loop()
        oldest_s = loop.time() - KEEPALIVE_S
        for since_s, connection in self._free:
            if since_s <= oldest_s:
                connection.abort()
        self._free = [each for each in self._free if each[0] > oldest_s and each[1].is_usable]
        self._timer = loop.call_later(KEEPALIVE_S / 2, self._expire) if self._free else None


def _tls() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context
