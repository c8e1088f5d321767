"""Connections to workers, each checked for where it really goes."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from gateway.addresses import Network, check_address

AddressInfo: TypeAlias = tuple[int | socket.AddressFamily, int | socket.SocketKind, int, str, tuple[Any, ...]]


def checked_sockets(allowed: Sequence[Network]) -> Callable[[AddressInfo], socket.socket]:
    """Return a maker of sockets, as aiohttp takes one, which refuses addresses that are out of bounds.

    It is given what a name resolved to for this very connection, so a name that resolves otherwise the second
    time (DNS rebinding) gains nothing. Raises AddressRefusedError.
    """

    def make(info: AddressInfo) -> socket.socket:
        family, kind, protocol, _, address = info
        check_address(str(address[0]), allowed)
        return socket.socket(family, kind, protocol)

    return make
