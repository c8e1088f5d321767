"""Encodings as bytes: what comes back, and what is refused."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.context.encoding import Encoding, unit
from gateway.context.packing import pack, packed_bytes, unpack

D = 16
HEADER_BYTES = 24


def encoding(num_parts: int = 2, num_sentences: int = 3, num_tokens: int = 7) -> Encoding:
    draw = np.random.default_rng(5)

    def rows(n: int) -> np.ndarray:
        return unit(draw.standard_normal((n, D)).astype(np.float32))

    ids = draw.integers(0, 30_000, num_tokens).astype(np.int32)
    tokens = rows(num_tokens).astype(np.float16)
    return Encoding(rows(1)[0], rows(num_parts), rows(num_sentences), tokens, ids)


@pytest.mark.parametrize("sent", [encoding(), encoding(1, 1, 1), Encoding.of_vector([0.6, 0.8] * 8)])
def test_what_was_packed_comes_back(sent: Encoding) -> None:
    back = unpack(pack(sent), D)
    assert back is not None
    for name in ("vector", "parts", "sentences", "token_ids"):
        assert np.array_equal(getattr(back, name), getattr(sent, name))
        assert getattr(back, name).dtype == getattr(sent, name).dtype
    assert back.tokens.dtype == np.float16
    # Half a step of 1/127 of the largest value, and the rounding to 16 bits.
    assert np.abs(back.tokens.astype(float) - sent.tokens.astype(float)).max(initial=0.0) <= 0.5 / 127 + 5e-4
    assert len(pack(sent)) == packed_bytes(sent)


def test_values_that_were_read_can_be_written_to() -> None:
    back = unpack(pack(encoding()), D)
    assert back is not None
    assert all(array.flags.writeable for array in (back.vector, back.parts, back.tokens, back.token_ids))


@given(st.binary(max_size=200))
def test_foreign_bytes_are_no_encoding(value: bytes) -> None:
    assert unpack(value, D) is None


@given(st.integers(0, packed_bytes(encoding()) - 1), st.integers(1, 255))
def test_one_wrong_byte_is_noticed(position: int, change: int) -> None:
    value = bytearray(pack(encoding()))
    value[position] ^= change
    assert unpack(bytes(value), D) is None


def test_a_value_of_another_length_or_dimension_is_refused() -> None:
    value = pack(encoding())
    assert unpack(value[:-1], D) is None
    assert unpack(value + b"\0", D) is None
    assert unpack(value, 2 * D) is None


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), 1e38, 2.0])
def test_vectors_that_are_no_unit_vectors_are_refused_though_the_checksum_is_right(wrong: float) -> None:
    value = pack(encoding())
    body = bytearray(value[HEADER_BYTES:])
    body[:4] = struct.pack("<f", wrong)
    forged = value[:4] + struct.pack("<I", zlib.crc32(body)) + value[8:HEADER_BYTES] + bytes(body)
    assert unpack(forged, D) is None
