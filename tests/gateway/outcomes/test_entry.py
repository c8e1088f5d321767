"""The entries of an experiment's stream, on their way to Redis and back."""

from __future__ import annotations

import math

import pytest

from gateway.outcomes.entry import Entry, Exposure, Feedback, TurnOutcome, decode_entry, encode_entry

ENTRIES: tuple[Entry, ...] = (
    Exposure("unit", "treatment", 1_796_000_000.125),
    TurnOutcome("turn-1", "unit", "", 1.5, {"latency_s": 0.1, "feedback": 1e-300}),
    TurnOutcome("turn-2", "unit", "control", 2.0, {}, shadow_of="turn-1"),
    Feedback("turn-1", "helpful", -0.0, 3.0),
)
OUTCOME = {b"kind": b"outcome", b"turn": b"t", b"unit": b"u", b"arm": b"a", b"at": b"1.0"}


def stored(fields: dict[str, str]) -> dict[bytes, bytes]:
    return {name.encode(): value.encode() for name, value in fields.items()}


@pytest.mark.parametrize("entry", ENTRIES)
def test_an_entry_comes_back_as_it_went(entry: Entry) -> None:
    assert decode_entry(stored(encode_entry(entry)) | {b"of_tomorrow": b"1"}) == entry


@pytest.mark.parametrize(
    "entry",
    [TurnOutcome("t", "u", "a", 1.0, {"latency_s": math.nan}), Feedback("t", "helpful", math.inf, 1.0)],
)
def test_what_is_no_finite_number_is_not_written(entry: Entry) -> None:
    with pytest.raises(ValueError, match="finite"):
        encode_entry(entry)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {b"kind": b"other"},
        {b"kind": b"exposure", b"unit": b"u", b"arm": b"a", b"at": b"noon"},
        {b"kind": b"feedback", b"turn": b"t"},
        {b"kind": b"\xff"},
        *(
            {**OUTCOME, b"values": values}
            for values in (b"[1]", b"1", b"null", b'{"a": null}', b'{"a": {}}', b"{")
        ),
    ],
)
def test_a_damaged_entry_is_one_kind_of_error(fields: dict[bytes, bytes]) -> None:
    with pytest.raises(ValueError):
        decode_entry(fields)
