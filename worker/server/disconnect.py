"""Stops work whose client has gone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from starlette.types import Receive

from worker.errors import ClientLeftError

T = TypeVar("T")


async def until_client_leaves(receive: Receive, work: Awaitable[T]) -> T:
    """Return what the work returns. When the client goes first, cancel it and raise ClientLeftError.

    The request's body must have been read: afterwards the server's next message is the disconnect.
    """
    task = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_left(receive))
    try:
        await asyncio.wait((task, leaving), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientLeftError("the client closed its connection")
    finally:
        task.cancel()
        leaving.cancel()
        await asyncio.gather(task, leaving, return_exceptions=True)


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
