"""httpx's connections, each checked for where it really goes."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable, Sequence

import httpcore
import httpx
from httpcore import SOCKET_OPTION

from gateway.addresses import AddressRefusedError, Network, check_address

MAX_CONNECTIONS, MAX_IDLE, IDLE_S = 100, 20, 5.0


class CheckedTransport(httpx.AsyncHTTPTransport):
    """Connects to addresses within bounds alone, and through no proxy."""

    def __init__(self, allowed: Sequence[Network]) -> None:
        super().__init__(trust_env=False)
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=httpx.create_ssl_context(trust_env=False),
            max_connections=MAX_CONNECTIONS,
            max_keepalive_connections=MAX_IDLE,
            keepalive_expiry=IDLE_S,
            network_backend=_CheckedBackend(allowed),
        )


class _CheckedBackend(httpcore.AnyIOBackend):
    """Resolves a name itself and connects to the address that it has checked (no DNS rebinding)."""

    def __init__(self, allowed: Sequence[Network]) -> None:
        super().__init__()
        self._allowed = tuple(allowed)

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's own parameter
        local_address: str | None = None,
        socket_options: Iterable[SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        found = await self._resolved(host, port, timeout)
        failure: Exception = httpcore.ConnectError(f"{host} has no address")
        for address in found:
            try:
                check_address(address, self._allowed)
                return await super().connect_tcp(address, port, timeout, local_address, socket_options)
            except AddressRefusedError as error:
                failure = httpcore.ConnectError(str(error))
            except httpcore.ConnectError as error:
                failure = error
        raise failure

    async def _resolved(self, host: str, port: int, timeout_s: float | None) -> list[str]:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout_s):
                infos = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except TimeoutError as error:
            raise httpcore.ConnectTimeout("the name was not resolved in time") from error
        except OSError as error:
            raise httpcore.ConnectError(str(error)) from error
        return list(dict.fromkeys(str(info[4][0]) for info in infos))
