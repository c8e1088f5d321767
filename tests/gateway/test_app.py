"""The composition root: how it ends."""

from __future__ import annotations

import asyncio

from gateway.app import end_tasks


async def test_cpython_86296_a_cancel_that_is_lost_is_sent_again() -> None:
    lost: list[bool] = []

    async def stubborn() -> None:
        while True:
            try:
                await asyncio.sleep(60.0)
            except asyncio.CancelledError:
                if lost:
                    raise
                lost.append(True)  # what wait_for did before Python 3.12, where both came together

    task = asyncio.create_task(stubborn())
    await asyncio.sleep(0)
    await asyncio.wait_for(end_tasks([task]), timeout=30.0)
    assert task.cancelled()
    assert lost == [True]


async def test_nothing_to_end_is_no_wait() -> None:
    await end_tasks([])
