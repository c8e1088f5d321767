"""A read that waits too long is ended; one timer does for all of them."""

from __future__ import annotations

import asyncio

import pytest

from gateway.pool.silence import Silence


class Content:
    """Takes the exception as a stream reader does."""

    def __init__(self) -> None:
        self.read: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def set_exception(self, exc: BaseException) -> None:
        self.read.set_exception(exc)


async def test_a_read_that_is_not_over_in_time_raises() -> None:
    content = Content()
    silence = Silence(content)
    silence.begin(0.02)
    with pytest.raises(TimeoutError):
        await content.read


async def test_a_shorter_limit_than_the_last_one_holds() -> None:
    content = Content()
    silence = Silence(content)
    silence.begin(60.0)
    silence.end()
    silence.begin(0.02)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(content.read, 10.0)


async def test_a_read_that_began_later_has_its_whole_time() -> None:
    content, loop = Content(), asyncio.get_running_loop()
    silence = Silence(content)
    silence.begin(0.02)
    await asyncio.sleep(0)
    silence.end()
    silence.begin(0.2)  # the timer of the first fires in its midst
    began_at = loop.time()
    with pytest.raises(TimeoutError):
        await content.read
    assert loop.time() - began_at >= 0.2 - 1e-3


async def test_nothing_ends_where_nothing_is_read() -> None:
    content = Content()
    silence = Silence(content)
    silence.begin(0.01)
    silence.end()
    fired = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(0.03, fired.set_result, None)
    await fired
    assert not content.read.done()
    silence.close()
