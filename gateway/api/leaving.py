"""Work that ends with the client's leaving."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope

from worker.edge.bounds import CONNECTION

T = TypeVar("T")


async def while_connected(scope: Scope, receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Return what ``work`` gives; it is cancelled as soon as the client has gone.

    The request's body must have been read. Raises ClientDisconnect.
    """
    # The work runs in this task, as under asyncio.timeout: one of its own would cost a request 30 µs.
    here = asyncio.current_task()
    assert here is not None
    has_left = False

    def cancel() -> None:
        nonlocal has_left
        has_left = True
        here.cancel()

    watch = scope[CONNECTION].when_lost if CONNECTION in scope else _Listener(receive).when_lost
    watch(cancel)
    try:
        return await work
    except asyncio.CancelledError:
        if has_left and here.cancelling() == 1:  # by us alone
            raise ClientDisconnect from None
        raise
    finally:
        watch(None)
        if has_left:
            here.uncancel()


class _Listener:
    """Learns of the client's leaving from ``receive``, under a server whose connections do not tell."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._task: asyncio.Task[None] | None = None

    def when_lost(self, tell: Callable[[], None] | None) -> None:
        if tell is not None:
            self._task = asyncio.create_task(self._listen(tell), name="leaving")
        elif self._task is not None:
            self._task.cancel()

    async def _listen(self, tell: Callable[[], None]) -> None:
        with contextlib.suppress(Exception):  # whatever it is, nobody listens there any more
            while (await self._receive())["type"] != "http.disconnect":
                pass
        tell()
