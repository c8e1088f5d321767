"""Bytes over a socket, and what comes back for them."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

PATIENCE_S = 15.0


def ask(url: str, sent: bytes, *, is_closed: bool = False) -> bytes:
    """Send bytes and return all that comes until the server closes, as it must where it refuses."""
    address = urlsplit(url)
    with socket.create_connection((address.hostname or "", address.port or 0), PATIENCE_S) as connection:
        try:
            connection.sendall(sent)
            if is_closed:
                connection.shutdown(socket.SHUT_WR)
        except (BrokenPipeError, ConnectionResetError):
            pass  # refused while we were still sending
        return b"".join(received_on(connection))


def received_on(connection: socket.socket) -> Iterator[bytes]:
    try:
        while part := connection.recv(65_536):
            yield part
    except ConnectionResetError:
        return


def answers_of(received: bytes) -> list[tuple[int, bytes]]:
    """The status and body of each answer on a connection, by their lengths."""
    found = []
    while received:
        head, _, rest = received.partition(b"\r\n\r\n")
        status = int(head.split()[1])
        lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        assert len(lengths) == 1
        length = int(lengths[0].partition(b":")[2])
        found.append((status, rest[:length]))
        received = rest[length:]
    return found
