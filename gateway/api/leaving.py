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
    doing = asyncio.create_task(work, name=name)
    leaving = asyncio.create_task(_until_gone(receive), name=f"{name} leaving")
    try:
        await asyncio.wait({doing, leaving}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        leaving.cancel()
        doing.cancel()
        await asyncio.wait({doing, leaving})
    if doing.cancelled():
        raise ClientDisconnect
    return doing.result()


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
