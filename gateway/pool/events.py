"""Server-sent events out of a worker's bytes, wherever the network cut them."""

from __future__ import annotations

from gateway.errors import UpstreamError

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
ONE_EVENT = b"data: "
MAX_EVENT_BYTES = 16 * 1024 * 1024


class EventParser:
    """Gives the data of each event, in order; comments and the other fields are dropped.

    Works on bytes and splits at CR, LF and CRLF alone: U+2028 and U+0085 inside a JSON string are no line
    ends (httpx-sse#34), and a character cut in two by the network is whole again here.
    Raises UpstreamError for an event without end.
    """

    def __init__(self) -> None:
        self._line = bytearray()
        self._data: list[bytes] = []
        self._num_data_bytes = 0
        self._ended_in_cr = False
        self._is_first_line = True

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the data of the events that ``chunk`` completes."""
        if self._ended_in_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
            self._ended_in_cr = False
        if not chunk:
            return []
        if self._is_one_event(chunk):
            self._ended_in_cr = self._is_first_line = False
            return [chunk[len(ONE_EVENT) : -2]]
        if b"\r" in chunk:
            self._ended_in_cr = chunk.endswith(b"\r")
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        else:
            self._ended_in_cr = False
        events = self._split(chunk)
        if len(self._line) + self._num_data_bytes > MAX_EVENT_BYTES:
            raise UpstreamError("The worker sent an event without end.")
        return events

    def _is_one_event(self, chunk: bytes) -> bool:
        """Whether nothing waits and ``chunk`` is what nearly all are: one line of data and a blank one."""
        return (
            chunk.startswith(ONE_EVENT)
            and chunk.find(b"\n") == len(chunk) - 2
            and chunk.endswith(b"\n")
            and not self._line
            and not self._data
            and b"\r" not in chunk
        )

    def finish(self) -> list[bytes]:
        """Return what the end of the stream left without its blank line."""
        return self._split(b"\n\n")

    def _split(self, chunk: bytes) -> list[bytes]:
        head, *rest = chunk.split(b"\n")
        self._line += head
        events: list[bytes] = []
        for following in rest:
            self._take_line(bytes(self._line), events)
            self._line = bytearray(following)
        return events

    def _take_line(self, line: bytes, events: list[bytes]) -> None:
        if self._is_first_line:
            line = line.removeprefix(BYTE_ORDER_MARK)
            self._is_first_line = False
        if not line:
            if self._data:
                events.append(b"\n".join(self._data))
                self._data = []
                self._num_data_bytes = 0
            return
        field, _, value = line.partition(b":")
        if field == b"data":
            self._data.append(value.removeprefix(b" "))
            self._num_data_bytes += len(value)
