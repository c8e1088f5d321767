"""Ctrl-C and SIGTERM for a command that owns child processes."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class InterruptedBySignal(Exception):
    """The command was told to end, and has cleaned up."""

    def __init__(self, number: signal.Signals) -> None:
        super().__init__(f"ended by {number.name}")
        self.exit_status = 128 + number


async def until_signal(work: Coroutine[Any, Any, T]) -> T:
    """Return what the work returns; a first signal cancels it and waits for its clean-up.

    A second signal ends this process at once: the leash ends the children. Raises InterruptedBySignal.
    """
    loop = asyncio.get_running_loop()
    task = loop.create_task(work)
    received: list[signal.Signals] = []

    def on_signal(number: signal.Signals) -> None:
        if received:
            os._exit(128 + number)
        received.append(number)
        task.cancel()

    for number in SIGNALS:
        loop.add_signal_handler(number, on_signal, number)
    try:
        return await task
    except asyncio.CancelledError:
        if not received:
            raise
        raise InterruptedBySignal(received[0]) from None
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)
