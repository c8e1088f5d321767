"""HTTP connections that do not wait for ever for a client that has stopped reading.

uvicorn stops taking more from the application while a connection has 64 KiB unsent, and then waits as long as
the connection lives. Here a connection that gets rid of nothing for the write timeout is dropped: its work
ends as if the client had left. Whoever reads, however slowly, is served to the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import socket
import struct
import termios
from typing import ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

SEND_BUFFER_BYTES = 256 * 1024
"""What the kernel may hold for one client; left to itself it would take some megabytes."""
CHECKS = 4
"""How often within the timeout is looked."""


class PatientProtocol(HttpToolsProtocol):
    """uvicorn's HTTP/1.1 with ``write_timeout_s``, which a subclass sets."""

    write_timeout_s: ClassVar[float]
    _check: asyncio.TimerHandle | None = None
    _unsent_bytes = 0
    _progress_at = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(_descriptor(transport))) as own:
            own.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_checking()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._begin_checking()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_checking()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.get_write_buffer_size():  # the last bytes: nothing more will be sent that waits
            self._begin_checking()

    def _begin_checking(self) -> None:
        self._stop_checking()
        self._unsent_bytes, self._progress_at = self._num_unsent(), self.loop.time()
        self._check = self.loop.call_later(self.write_timeout_s / CHECKS, self._look)

    def _stop_checking(self) -> None:
        if self._check is not None:
            self._check.cancel()
            self._check = None

    def _look(self) -> None:
        self._check = None
        if not self.transport.get_write_buffer_size():
            return
        unsent, now = self._num_unsent(), self.loop.time()
        if unsent < self._unsent_bytes:
            self._progress_at = now
        self._unsent_bytes = unsent
        if now - self._progress_at < self.write_timeout_s:
            self._check = self.loop.call_later(self.write_timeout_s / CHECKS, self._look)
            return
        self.tell_unread(unsent)
        self.transport.abort()

    def tell_unread(self, unsent_bytes: int) -> None:
        """Called before a connection is dropped that nobody reads from; for a subclass that keeps a log."""

    def _num_unsent(self) -> int:
        """Return the bytes that the client has not got, in this process and in the kernel."""
        in_kernel = 0
        with contextlib.suppress(OSError):  # not every platform tells
            answer = fcntl.ioctl(_descriptor(self.transport), termios.TIOCOUTQ, struct.pack("i", 0))
            (in_kernel,) = struct.unpack("i", answer)
        return self.transport.get_write_buffer_size() + int(in_kernel)


def _descriptor(transport: asyncio.Transport) -> int:
    connection = transport.get_extra_info("socket")
    return int(connection.fileno())
