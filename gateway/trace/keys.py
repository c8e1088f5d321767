"""Where a turn is in Redis, and how a text is named that must not be read."""

from __future__ import annotations

from hashlib import blake2b

TURN_KEY_PREFIX = "ng:turn:"
TURNS_KEY = "ng:turns"
TURNS_INDEX_KEY = "ng:index:{ng:turns}"
"""The braces put it into the slot of ``TURNS_KEY``, as one script writes both."""


def turn_key(turn_id: str) -> str:
    """Redis key of a turn's record."""
    return TURN_KEY_PREFIX + turn_id


def text_hash(text: str) -> str:
    """128 bits of blake2b, in hex."""
    return "blake2b:" + blake2b(text.encode("utf-8", "replace"), digest_size=16).hexdigest() if text else ""
