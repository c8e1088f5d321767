"""Where the processes listen: the default ports, and ports that are free."""

from __future__ import annotations

import socket

from gateway.errors import StackError

LOOPBACK = "127.0.0.1"
GATEWAY_PORT = 8080
WORKER_PORT = 8081
VALKEY_PORT = 6380
"""Not Redis' own 6379, where one may run already."""


def valkey_url(port: int) -> str:
    """Address of the embedded Valkey."""
    return f"redis://{LOOPBACK}:{port}/0"


def free_port() -> int:
    """Return a port that nothing listens on at this moment."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def require_free(port: int, name: str, option: str) -> None:
    """Raise StackError, naming the option to change, where something listens on the port."""
    with socket.socket() as probe:
        # As servers bind: a port whose last connections are in TIME_WAIT counts as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError as error:
            raise StackError(
                f"port {port}, meant for the {name}, cannot be had ({error.strerror}): "
                f"end what listens there, or choose another port with {option}"
            ) from error
