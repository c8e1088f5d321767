"""A connection before there is a request: how large a head may be, how long it and the body may take.

uvicorn's parser takes heads of any size and waits for them for ever. What is refused here never reaches the
application, so the answer is written by hand.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Protocol, TypeAlias

from starlette.datastructures import MutableHeaders
from starlette.responses import Response
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from worker.edge.patience import PatientProtocol

CONNECTION = "gravity.connection"
"""Where in the ASGI scope of a request its connection lies, a BoundedProtocol."""
SECURITY_HEADERS: Mapping[str, str] = MappingProxyType({"X-Content-Type-Options": "nosniff"})

Fault: TypeAlias = Literal["url_too_long", "head_too_large", "not_http", "timed_out"]
"""What is wrong with what a connection has sent, before it is a request."""


class Limits(Protocol):
    """A server's settings: bytes, for the head names and values of all headers together; and seconds."""

    @property
    def max_url_bytes(self) -> int: ...

    @property
    def max_head_bytes(self) -> int: ...

    @property
    def head_timeout_s(self) -> float: ...

    @property
    def body_timeout_s(self) -> float: ...

    @property
    def write_timeout_s(self) -> float: ...


class _Refused(Exception):
    """Ends uvicorn's parser; what is answered stands in the protocol."""


class Stage(Enum):
    """What the client is to send next."""

    NOTHING = 0
    HEAD = 1
    BODY = 2


class BoundedProtocol(PatientProtocol):
    """uvicorn's HTTP/1.1 with ``limits`` and ``refusal``, which a subclass gives.

    A request that comes in one read costs no timer.
    """

    limits: ClassVar[Limits]

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.url = b""
        self._stage = self._timed = Stage.NOTHING
        self._timer: asyncio.TimerHandle | None = None
        self._num_heads = 0
        self._num_head_bytes = 0
        self._num_unparsed_bytes = 0
        self._fault: Fault | None = None
        self._when_lost: Callable[[], None] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._stage = Stage.HEAD
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)
        self._tell_lost()

    def when_lost(self, tell: Callable[[], None] | None) -> None:
        """Have ``tell`` called once, as soon as nobody is there to be answered; None ends that.

        For the request that is being answered: an ASGI application learns the same from ``receive``, at the
        price of a task for every request.
        """
        self._when_lost = tell
        if self.cycle.disconnected or self.transport.is_closing():
            self.loop.call_soon(self._tell_lost)

    def data_received(self, data: bytes) -> None:
        num_heads = self._num_heads
        super().data_received(data)
        if self.transport.is_closing():
            self._stop_timer()
            return
        if self._stage is Stage.HEAD and self._num_heads == num_heads:
            # One header that never ends is told to nobody by the parser.
            self._num_unparsed_bytes += len(data)
            if self._num_unparsed_bytes > self.limits.max_head_bytes:
                self._refuse("head_too_large")
                return
        if self._stage is Stage.NOTHING and self.timeout_keep_alive_task is None and not self._is_answering:
            self._stage = Stage.HEAD  # blank lines, which end uvicorn's waiting and begin no request
        self._watch()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope[CONNECTION] = self  # type: ignore[literal-required]
        self._stage = Stage.HEAD
        self._num_heads += 1
        self._num_head_bytes = self._num_unparsed_bytes = 0

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        if len(self.url) > self.limits.max_url_bytes:
            raise self._refused("url_too_long")

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        self._num_head_bytes += len(name) + len(value) + 4
        if self._num_head_bytes > self.limits.max_head_bytes:
            raise self._refused("head_too_large")

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self._stage = Stage.BODY

    def on_message_complete(self) -> None:
        self._stop_timer()
        self._stage = Stage.NOTHING
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Called by uvicorn for whatever its parser does not read on from, our own refusals among it."""
        self._refuse(self._fault or "not_http")

    def refusal(self, fault: Fault, path: str) -> Response:
        """Return the answer to a connection that sent ``fault``; ``path`` is empty where none was read."""
        raise NotImplementedError

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _refused(self, fault: Fault) -> _Refused:
        self._fault = fault
        return _Refused(fault)

    def _refuse(self, fault: Fault) -> None:
        """Answer ``fault``, unless an answer has begun that it would become a part of; and close."""
        self._stop_timer()
        if self._is_answering:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            self._tell_lost()
            is_free = not self.cycle.response_started and not self.pipeline
        else:
            is_free = self._stage is not Stage.BODY
        if is_free:
            path = self.url.partition(b"?")[0].decode("latin-1")
            self.transport.write(written(self.refusal(fault, path)))
        self.transport.close()

    def _tell_lost(self) -> None:
        tell, self._when_lost = self._when_lost, None
        if tell is not None:
            tell()

    def _watch(self) -> None:
        """Have one timer for what is awaited now."""
        if self._stage is self._timed:
            return
        self._stop_timer()
        seconds = {Stage.HEAD: self.limits.head_timeout_s, Stage.BODY: self.limits.body_timeout_s}
        if self._stage in seconds:
            self._timed = self._stage
            self._timer = self.loop.call_later(seconds[self._stage], self._too_late)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timed = None, Stage.NOTHING

    def _too_late(self) -> None:
        self._stop_timer()
        is_next = self._stage is Stage.HEAD and self._is_answering
        if is_next or self.flow.read_paused:  # it is we who let the client wait
            self._watch()
        elif not self.transport.is_closing():
            self._refuse("timed_out")


def bounded_by(limits: Limits, kind: type[BoundedProtocol]) -> type[BoundedProtocol]:
    """Return ``kind`` with its limits, as uvicorn takes a protocol."""
    return type(kind.__name__, (kind,), {"limits": limits, "write_timeout_s": limits.write_timeout_s})


def written(response: Response, new_id: Callable[[], str] = lambda: f"req-{uuid.uuid4().hex}") -> bytes:
    """Return the bytes of an answer after which the connection is closed."""
    headers = MutableHeaders(raw=response.raw_headers)
    headers.update({**SECURITY_HEADERS, "X-Request-Id": new_id(), "Connection": "close"})
    lines = b"".join(b"%s: %s\r\n" % header for header in headers.raw)
    return STATUS_LINE[response.status_code] + lines + b"\r\n" + bytes(response.body)
