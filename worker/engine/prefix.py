"""Which blocks of keys and values are kept for other requests, by what the text up to their end is.

A block holds 16 tokens and is named by a digest of all tokens up to its end, so equal names mean equal
prefixes (the chained hashes of vLLM's automatic prefix caching). Bounded; what runs holds its blocks, and of
the others the one that was used least recently makes room, the end of a text before its beginning.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b

BLOCK_TOKENS = 16
_DIGEST_BYTES = 16
"""128 bits of a cryptographic hash: a collision would answer with another request's text."""


def extend_digests(known: list[bytes], token_ids: Sequence[int], num_tokens: int) -> list[bytes]:
    """Return the digests of the full blocks of the first ``num_tokens`` ids; ``known`` is extended for it."""
    num_blocks = num_tokens // BLOCK_TOKENS
    while len(known) < num_blocks:
        start = len(known) * BLOCK_TOKENS
        block = array("i", token_ids[start : start + BLOCK_TOKENS]).tobytes()
        before = known[-1] if known else b""
        known.append(blake2b(before + block, digest_size=_DIGEST_BYTES).digest())
    return known[:num_blocks]


class PrefixCache:
    """Names and owners of ``num_blocks`` blocks; the numbers themselves lie in kv.KVBlocks."""

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self._free = list(range(num_blocks - 1, -1, -1))
        self._block_of: dict[bytes, int] = {}
        self._digest_of: dict[int, bytes] = {}
        self._num_holders: dict[int, int] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()
        """Blocks that nobody holds, the least recently used first."""

    @property
    def num_used(self) -> int:
        return len(self._block_of)

    @property
    def num_held(self) -> int:
        return len(self._block_of) - len(self._idle)

    def find(self, digests: Sequence[bytes]) -> list[int]:
        """Return the blocks of the longest known beginning, and hold them."""
        found = []
        for digest in digests:
            block = self._block_of.get(digest)
            if block is None:
                break
            self._hold(block)
            found.append(block)
        return found

    def count(self, digests: Sequence[bytes]) -> int:
        """Return how many blocks ``find`` would give."""
        return next((n for n, digest in enumerate(digests) if digest not in self._block_of), len(digests))

    def place(self, digest: bytes) -> tuple[int, bool] | None:
        """Return the held block of this digest and whether it is new, to be written; None without room."""
        block = self._block_of.get(digest)
        if block is not None:
            self._hold(block)
            return block, False
        block = self._take()
        if block is None:
            return None
        self._block_of[digest], self._digest_of[block] = block, digest
        self._hold(block)
        return block, True

    def drop(self, blocks: Sequence[int]) -> None:
        """Hold these, in the order of their text, once less."""
        for block in reversed(blocks):
            self._num_holders[block] -= 1
            if not self._num_holders[block]:
                del self._num_holders[block]
                self._idle[block] = None

    def _hold(self, block: int) -> None:
        self._num_holders[block] = self._num_holders.get(block, 0) + 1
        self._idle.pop(block, None)

    def _take(self) -> int | None:
        if self._free:
            return self._free.pop()
        if not self._idle:
            return None
        block, _ = self._idle.popitem(last=False)
        del self._block_of[self._digest_of.pop(block)]
        return block
