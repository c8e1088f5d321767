"""Server-sent events out of bytes that the network cut anywhere."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import UpstreamError
from gateway.pool.events import MAX_EVENT_BYTES, EventParser

STREAM = (
    b'\xef\xbb\xbfdata: {"a": 1}\n\n'
    b": a comment\r\n\r\n"
    b"event: note\rid: 7\rdata:two\r\r"
    b"data: first line\ndata: second line\n\n"
    b'data: {"text": "\xe2\x80\xa8\xc2\x85\xf0\x9f\x98\x80"}\r\n\r\n'
    b"retry: 10\n\n"
    b"data: [DONE]\n\n"
)
EVENTS = [
    b'{"a": 1}',
    b"two",
    b"first line\nsecond line",
    '{"text": "\u2028\u0085\U0001f600"}'.encode(),
    b"[DONE]",
]


def test_each_event_is_given_once_with_its_data_alone() -> None:
    assert EventParser().feed(STREAM) == EVENTS


def test_a_byte_at_a_time_gives_the_same_events() -> None:
    parser = EventParser()
    assert [event for byte in STREAM for event in parser.feed(bytes([byte]))] == EVENTS


@given(st.lists(st.integers(min_value=0, max_value=len(STREAM)), max_size=12))
def test_any_cuts_give_the_same_events(cuts: list[int]) -> None:
    parser = EventParser()
    edges = [0, *sorted(cuts), len(STREAM)]
    pieces = [STREAM[start:end] for start, end in itertools.pairwise(edges)]
    assert [event for piece in pieces for event in parser.feed(piece)] == EVENTS


def test_an_event_without_its_blank_line_is_given_at_the_end() -> None:
    parser = EventParser()
    assert parser.feed(b'data: {"a": 1}\n\ndata: [DONE]') == [b'{"a": 1}']
    assert parser.finish() == [b"[DONE]"]
    assert parser.finish() == []


def test_an_event_without_end_is_refused() -> None:
    parser = EventParser()
    assert parser.feed(b"x" * MAX_EVENT_BYTES) == []
    with pytest.raises(UpstreamError):
        parser.feed(b"x")


def test_many_lines_of_one_event_are_bounded_too() -> None:
    parser = EventParser()
    assert parser.feed(b"data: " + b"x" * (MAX_EVENT_BYTES - 100) + b"\n") == []
    with pytest.raises(UpstreamError):
        parser.feed(b"data: " + b"x" * 100 + b"\n")


@given(
    st.lists(
        st.sampled_from([b"data: x\n\n", b"data: y\r", b"\n", b"data: z\n", b"\r\n", b"data: "]), max_size=8
    )
)
def test_reads_that_are_one_event_are_understood_as_if_they_came_byte_by_byte(reads: list[bytes]) -> None:
    whole, slow = EventParser(), EventParser()
    by_read = [event for read in reads for event in whole.feed(read)] + whole.finish()
    by_byte = [event for byte in b"".join(reads) for event in slow.feed(bytes([byte]))] + slow.finish()
    assert by_read == by_byte
