"""Frames and pings."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator

import pytest

from worker.server.sse import PING, frame, with_pings


@pytest.mark.parametrize("text", ["plain", "two\nlines\r\n", "\u2028\u2029\u0085", "ü 🚀", '"quoted"'])
def test_a_frame_is_one_line_by_every_definition_of_a_line(text: str) -> None:
    encoded = frame({"text": text}).decode()
    assert encoded.startswith("data: ")
    assert encoded.endswith("\n\n")
    assert len(encoded.removesuffix("\n\n").splitlines()) == 1
    assert json.loads(encoded.removeprefix("data: ")) == {"text": text}


async def test_pings_fill_the_silence_and_nothing_is_lost() -> None:
    released = asyncio.Event()

    async def frames() -> AsyncGenerator[bytes, None]:
        yield b"first"
        await released.wait()
        yield b"second"

    seen: list[bytes] = []
    async for chunk in with_pings(frames(), 0.01):
        seen.append(chunk)
        if seen.count(PING) == 3:
            released.set()
    assert seen[0] == b"first"
    assert seen[-1] == b"second"
    assert set(seen[1:-1]) == {PING}


async def test_closing_in_the_middle_of_a_silence_closes_the_source() -> None:
    closed: list[str] = []

    async def frames() -> AsyncGenerator[bytes, None]:
        try:
            yield b"first"
            await asyncio.Event().wait()
        finally:
            closed.append("source")

    source = frames()
    chunks = with_pings(source, 0.01)
    assert await anext(chunks) == b"first"
    assert await anext(chunks) == PING
    await chunks.aclose()
    await source.aclose()
    assert closed == ["source"]


async def test_an_error_of_the_source_passes_through() -> None:
    async def frames() -> AsyncGenerator[bytes, None]:
        yield b"first"
        raise ValueError("broken")

    chunks = with_pings(frames(), 1.0)
    assert await anext(chunks) == b"first"
    with pytest.raises(ValueError, match="broken"):
        await anext(chunks)
