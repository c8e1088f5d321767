"""How much may be sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from starlette.requests import ClientDisconnect, Request

from gateway.errors import RequestTooLarge

DISCARD_BYTES = 64 * 1024 * 1024
DISCARD_S = 5.0


async def read_body(request: Request, max_bytes: int) -> bytes:
    """Return the body. Raises RequestTooLarge as soon as it is known to be over ``max_bytes``."""
    announced = request.headers.get("content-length", "")
    stream = request.stream()
    parts = []
    num_bytes = int(announced) if announced.isdecimal() else 0
    if num_bytes <= max_bytes:
        num_bytes = 0
        async for part in stream:
            parts.append(part)
            num_bytes += len(part)
            if num_bytes > max_bytes:
                break
    if num_bytes > max_bytes:
        await discard_body(request, stream)
        raise RequestTooLarge(f"The body is larger than {max_bytes} bytes.")
    return b"".join(parts)


async def discard_body(request: Request, stream: AsyncIterator[bytes] | None = None) -> None:
    """Read on for a while: a client that is still sending sees a reset, not our answer, if we just close.

    ``stream`` is what has been begun to be read of the body, if anything has.
    """
    if "expect" in request.headers:  # such a client waits for our word before it sends
        return
    stream = request.stream() if stream is None else stream
    num_bytes = 0
    try:
        async with asyncio.timeout(DISCARD_S):
            async for part in stream:
                num_bytes += len(part)
                if num_bytes > DISCARD_BYTES:
                    return
    except (TimeoutError, ClientDisconnect):
        return
