"""A turn's answer as an ASGI response that watches for the client's leaving from the first moment on."""

from __future__ import annotations

import contextlib
import logging

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gateway.api.caller import caller_of
from gateway.api.leaving import while_connected
from gateway.api.limits import Meter
from gateway.api.problems import error_response
from gateway.api.sse import EventStream
from gateway.api.state import note_error
from gateway.errors import InternalError, RequestError
from gateway.flow.deps import Deps
from gateway.flow.pipeline import serve
from gateway.flow.relay import Emit
from gateway.flow.turn import Turn

TURN_HEADER = "X-Gravity-Turn-Id"
SHED_HEADER = "X-Gravity-Shed"
"""The steps of shedding that are in force; absent where none is."""

logger = logging.getLogger(__name__)


class TurnResponse(Response):
    """Serves the turn while it is sent.

    The client's leaving cancels the turn in every phase: while it waits for a worker, during a retry, before
    the first token, in the middle of a stream and in a call that is not streamed (litellm#30245, #31499,
    #37140). An error before the first event is a status code; after it, an event.
    """

    def __init__(self, turn: Turn, deps: Deps) -> None:
        self.status_code = 200
        self.background = None
        self.body = b""
        self._turn = turn = deps.shedding.marked(turn)
        self._deps = deps
        self._named = {TURN_HEADER: turn.id}
        if turn.shed:
            self._named[SHED_HEADER] = ",".join(turn.shed)
        self._finished: Turn | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        work = self._stream if self._turn.is_streaming else self._send_whole
        with contextlib.suppress(ClientDisconnect):  # nobody is there to be told
            await while_connected(scope, receive, work(scope, receive, send))
        if self._finished is not None:
            self._deps.shadows.follow(self._finished, self._deps)

    async def _stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        settings = self._deps.settings
        stream = EventStream(send, self._named, settings.ping_interval_s, self._deps.monotonic)
        try:
            error = await self._served(scope, stream.emit)
            if error is None:
                await stream.end()
                return
            note_error(scope, error.code)
            if not stream.has_started:
                await error_response(error, self._named)(scope, receive, send)
                return
            await stream.fail(error)
            await stream.end()
        finally:
            await stream.stop()

    async def _send_whole(self, scope: Scope, receive: Receive, send: Send) -> None:
        parts: list[bytes] = []

        async def keep(content: bytes) -> None:
            parts.append(content)

        error = await self._served(scope, keep)
        if error is not None:
            note_error(scope, error.code)
            await error_response(error, self._named)(scope, receive, send)
            return
        response = Response(b"".join(parts), media_type="application/json", headers=self._named)
        await response(scope, receive, send)

    async def _served(self, scope: Scope, emit: Emit) -> RequestError | None:
        """Run the turn; return the error that the client is to be told."""
        try:
            meter = Meter(self._turn, self._deps, caller_of(scope).key)
            async with meter.open(scope):
                self._finished = await serve(self._turn, self._deps, meter.counting(emit))
                meter.finish(self._finished.outcome)
        except RequestError as error:
            return error
        except Exception:
            logger.exception("turn_failed")
            return InternalError()
        return None
