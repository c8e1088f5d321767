"""Texts in pieces that another server's encoder can take whole."""

from __future__ import annotations

from collections.abc import Iterator

WINDOW_BYTES = 1_500
"""Of UTF-8. Bytes go with tokens in every script: about 4 to one in English, 3 in Chinese. Most encoders that
people serve read 512 tokens."""
_LOOK_BACK = 4


def windows(text: str, max_bytes: int = WINDOW_BYTES) -> list[str]:
    """Cut ``text`` into pieces of at most ``max_bytes``, at a space where the last quarter has one.

    Pieces without anything to read are left out; there is always one.
    """
    pieces = [piece for piece in _cut(text.encode("utf-8", "replace"), max_bytes) if piece.strip()]
    return pieces or [" "]


def _cut(raw: bytes, max_bytes: int) -> Iterator[str]:
    start = 0
    while start < len(raw):
        end = start + max_bytes
        if end < len(raw):
            end = _boundary(raw, end - max_bytes // _LOOK_BACK, end)
        yield raw[start:end].decode()
        start = end


def _boundary(raw: bytes, first: int, last: int) -> int:
    """Return where to cut between ``first`` and ``last``: after the last space, or before a character."""
    space = max(raw.rfind(each, first, last) for each in (b" ", b"\n", b"\t"))
    if space >= 0:
        return space + 1
    while raw[last] & 0b1100_0000 == 0b1000_0000:  # inside a character
        last -= 1
    return last
