"""Random numbers that depend on nothing but the request: counter-based, no generator is shared."""

from __future__ import annotations

from hashlib import blake2b

_SEED_BYTES = 16
_FIELD_BYTES = 8
_MANTISSA_BITS = 53


def uniform(seed: int, choice: int, position: int) -> float:
    """Return u in [0, 1) for one position of one choice: the same on every machine and in every batch.

    ``seed`` may be any integer; it is taken modulo 2^128.
    """
    key = (seed % (1 << 8 * _SEED_BYTES)).to_bytes(_SEED_BYTES, "little")
    counter = choice.to_bytes(_FIELD_BYTES, "little") + position.to_bytes(_FIELD_BYTES, "little")
    digest = blake2b(counter, key=key, digest_size=8).digest()
    return (int.from_bytes(digest, "little") >> 64 - _MANTISSA_BITS) / (1 << _MANTISSA_BITS)
