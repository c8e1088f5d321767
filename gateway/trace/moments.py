"""Moments as people write them, ``1h`` or ``2026-11-30T10:00``, and as they read them."""

from __future__ import annotations

import re
import time
from datetime import datetime

from gateway.errors import TraceError

UNITS_S = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 7 * 86_400.0}
_AGO = re.compile(r"(\d+(?:\.\d+)?)([smhdw])")


def parse_moment(text: str, now: float) -> float:
    """Return Unix time: so long before ``now``, or an ISO moment, in this machine's zone where it names none.

    Raises TraceError for anything else.
    """
    if ago := _AGO.fullmatch(text.strip()):
        return now - float(ago[1]) * UNITS_S[ago[2]]
    try:
        return datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, OverflowError, OSError) as error:
        raise TraceError(f"{text!r} is no time: write 90s, 15m, 1h, 2d, or 2026-11-30T10:00") from error


def between(since: str | None, until: str | None) -> tuple[float | None, float | None]:
    """Return both as Unix time, None where not given. Raises TraceError."""
    now = time.time()
    start, end = (None if text is None else parse_moment(text, now) for text in (since, until))
    return start, end


def as_moment(unix_time: float) -> str:
    """Return day and time of this machine's zone, to the second."""
    return datetime.fromtimestamp(unix_time).strftime("%Y-%m-%d %H:%M:%S")
