"""Clients that go: in every phase of a request, closing in order or breaking off."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
from typing import Literal, TypeAlias, get_args

from gateway.bench.soak.requests import Request
from gateway.stack.ports import LOOPBACK

Phase: TypeAlias = Literal[
    "in its head", "in its body", "at once", "before its answer", "mid-answer", "having closed its half"
]
PHASES: tuple[Phase, ...] = get_args(Phase)
PATIENCE_S = 60.0
STAY_S = (0.0, 1.5)
_BREAK_OFF = struct.pack("ii", 1, 0)
"""SO_LINGER of zero seconds: what is sent at the close is a reset."""


async def leave(port: int, request: Request, draw: random.Random) -> str:
    """Ask on a connection of its own and go. Return the phase. Raises OSError."""
    phase, breaks_off = draw.choice(PHASES), draw.random() < 0.4
    stay_s, num_read = draw.uniform(*STAY_S), draw.randrange(1, 2_000)
    reader, writer = await asyncio.open_connection(LOOPBACK, port)
    try:
        head = (
            f"POST {request.path} HTTP/1.1\r\nHost: {LOOPBACK}:{port}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(request.content)}\r\n\r\n"
        ).encode()
        if phase == "in its head":
            writer.write(head[: len(head) // 2])
        elif phase == "in its body":
            writer.write(head + request.content[: len(request.content) // 2])
        else:
            writer.write(head + request.content)
            await _stay(phase, reader, writer, (stay_s, num_read))
        if breaks_off:
            own: socket.socket = writer.get_extra_info("socket")
            own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _BREAK_OFF)
    finally:
        writer.close()
    return phase


async def _stay(
    phase: Phase, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, limits: tuple[float, int]
) -> None:
    """Wait as the phase has it: ``limits`` are seconds, and bytes of the answer."""
    stay_s, num_bytes = limits
    if phase == "before its answer":
        await asyncio.sleep(stay_s)
    elif phase == "having closed its half":
        writer.write_eof()
        await asyncio.sleep(stay_s)
    elif phase == "mid-answer":
        with contextlib.suppress(TimeoutError):  # nothing came, and it goes all the same
            async with asyncio.timeout(PATIENCE_S):
                await reader.read(num_bytes)
