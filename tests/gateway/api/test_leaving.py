"""Work ends with its client's leaving."""

from __future__ import annotations

import asyncio

import pytest
from starlette.requests import ClientDisconnect
from starlette.types import Message

from gateway.api.leaving import while_connected


async def stays() -> Message:
    await asyncio.Event().wait()
    raise AssertionError


async def leaves() -> Message:
    return {"type": "http.disconnect"}


async def test_a_client_that_stays_gets_what_was_made() -> None:
    async def work() -> int:
        return 7

    assert await while_connected({}, stays, work()) == 7


async def test_a_client_that_leaves_ends_the_work() -> None:
    ended = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    with pytest.raises(ClientDisconnect):
        await while_connected({}, leaves, work())
    assert ended.is_set()


async def test_what_the_work_raises_comes_through() -> None:
    async def work() -> None:
        raise KeyError("a")

    with pytest.raises(KeyError):
        await while_connected({}, stays, work())


async def test_cancelling_the_waiting_cancels_the_work() -> None:
    ended = asyncio.Event()
    begun = asyncio.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    waiting = asyncio.create_task(while_connected({}, stays, work()))
    await begun.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert ended.is_set()
