"""Work that ends with the client's leaving."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect
from starlette.types import Receive

T = TypeVar("T")


async def while_connected(receive: Receive, work: Coroutine[Any, Any, T], name: str) -> T:
    """Return what ``work`` gives; it is cancelled as soon as the client has gone.

    The request's body must have been read. Raises ClientDisconnect.
    """
    # The work runs in this task, as under asyncio.timeout: one of its own would cost a request 30 µs.
    here = asyncio.current_task()
    assert here is not None
    has_left = False

    def cancel(leaving: asyncio.Task[None]) -> None:
        nonlocal has_left
        if not leaving.cancelled():
            leaving.exception()  # whatever it is, nobody listens there any more
            has_left = True
            here.cancel()

    leaving = asyncio.create_task(_until_gone(receive), name=f"{name} leaving")
    leaving.add_done_callback(cancel)
    try:
        return await work
    except asyncio.CancelledError:
        if has_left and here.cancelling() == 1:  # by us alone
            raise ClientDisconnect from None
        raise
    finally:
        leaving.remove_done_callback(cancel)
        leaving.cancel()
        if has_left:
            here.uncancel()


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
