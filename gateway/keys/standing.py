"""How a key stands to its limits at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from gateway.keys.bucket import Bucket

Short: TypeAlias = Literal["", "requests", "tokens", "turns"]
"""What there was not enough of; empty where there was."""

TURN_RETRY_S = 1.0
"""Nobody knows when one of the open turns ends."""


@dataclass(frozen=True, slots=True)
class Standing:
    """None: no such limit."""

    requests: Bucket | None
    tokens: Bucket | None

    def headers(self) -> Mapping[str, str]:
        """Return OpenAI's ``x-ratelimit-*``."""
        told: dict[str, str] = {}
        for name, bucket in (("requests", self.requests), ("tokens", self.tokens)):
            if bucket is not None:
                told[f"x-ratelimit-limit-{name}"] = str(bucket.per_minute)
                told[f"x-ratelimit-remaining-{name}"] = str(bucket.remaining)
                told[f"x-ratelimit-reset-{name}"] = duration_text(bucket.full_in_s)
        return told

    def retry_after_s(self, short: Short, num_tokens: int) -> float:
        """Return how long to wait before what was refused may be tried again."""
        if short == "requests" and self.requests is not None:
            return self.requests.wait_s(1)
        if short == "tokens" and self.tokens is not None:
            return self.tokens.wait_s(num_tokens)
        return TURN_RETRY_S


def duration_text(seconds: float) -> str:
    """As OpenAI writes it: ``20ms``, ``1.5s``, ``6m0s``, ``1h2m3s``."""
    if seconds < 1.0:
        return f"{max(0, round(seconds * 1e3))}ms"
    if seconds < 60.0:
        return f"{round(seconds, 3):g}s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes}m{rest}s" if hours else f"{minutes}m{rest}s"
