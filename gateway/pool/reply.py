"""An answer that a worker has begun, event by event; what becomes of it where it does not come to its end."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass

import aiohttp

from gateway.errors import UpstreamError, UpstreamTimeout, WorkerUnreachable
from gateway.pool.events import EventParser
from gateway.pool.exchange import Answer
from gateway.pool.silence import Silence

SETTLE_S = 0.1


@dataclass(frozen=True, slots=True)
class Timeouts:
    """In seconds.

    ``connect_s``        the TCP connection
    ``first_token_s``    until a stream begins, and until its second event
    ``idle_s``           between two events of a stream; a comment (": ping") is none
    ``whole_s``          an answer that is not streamed
    """

    connect_s: float
    first_token_s: float
    idle_s: float
    whole_s: float


class Reply:
    """An answer that has begun with 200. ``close`` ends the connection, so that the worker stops its work.

    Iterating gives the data of each event of a stream. Raises UpstreamError where the connection dies,
    UpstreamTimeout where it falls silent.
    """

    def __init__(self, answer: Answer, timeouts: Timeouts, whole: bytes | None = None) -> None:
        """``whole``: the body of an answer that is no stream."""
        self._answer = answer
        self._timeouts = timeouts
        self._silence = Silence(answer)
        self._parser = EventParser()
        self._waiting: deque[bytes] = deque()
        self._limit_s = timeouts.first_token_s
        self._num_events = 0
        self._has_ended = False
        self._whole = whole

    async def peek(self) -> bytes | None:
        """Return the next event without taking it; None at the end of the stream."""
        if not self._waiting and not self._has_ended:
            await self._read()
        return self._waiting[0] if self._waiting else None

    async def _read(self) -> None:
        """Wait for an event or the end. A comment is no sign of one: a worker that only pings has hung."""
        self._silence.begin(self._limit_s)
        try:
            while not self._waiting and not self._has_ended:
                chunk = await self._answer.readany()
                self._has_ended = not chunk
                self._waiting += self._parser.feed(chunk) if chunk else self._parser.finish()
        except OSError as error:  # TimeoutError is one
            raise meaning(error) from error
        finally:
            self._silence.end()
        self._num_events += len(self._waiting)
        if self._num_events > 1:  # many servers send the role at once and the first token much later
            self._limit_s = self._timeouts.idle_s

    def __aiter__(self) -> Reply:
        return self

    async def __anext__(self) -> bytes:
        if not self._waiting and await self.peek() is None:
            raise StopAsyncIteration
        return self._waiting.popleft()

    def whole(self) -> bytes:
        """Return the body of an answer that was not asked for as a stream."""
        assert self._whole is not None
        return self._whole

    async def settle(self) -> None:
        """After the last event, let the connection end in order, so that it can be used again."""
        if self._answer.is_complete:
            return
        try:
            async with asyncio.timeout(SETTLE_S):
                while await self._answer.readany():
                    pass
        except OSError:
            return  # the answer is complete; only the connection is lost

    def close(self) -> None:
        """End the connection where it is still busy."""
        self._silence.close()
        self._answer.close()


def meaning(error: Exception) -> UpstreamError | UpstreamTimeout:
    """Say what an exception of a connection, ours or aiohttp's, is to the gateway."""
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
        return WorkerUnreachable()
    return UpstreamTimeout() if isinstance(error, TimeoutError) else UpstreamError()
