"""The turn grows by copies."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from gateway.flow.turn import Turn

TURN = Turn("turn-1", 12.5, "/v1/completions", {"prompt": "hello"}, "m", False, True, user="ada")


def test_a_grown_turn_is_what_replace_would_make_and_leaves_the_first_as_it_was() -> None:
    grown = TURN.grown(bucket=3, worker="http://w")
    assert grown == replace(TURN, bucket=3, worker="http://w")
    assert (TURN.bucket, TURN.worker) == (0, "")
    assert set(vars(grown)) == {field.name for field in fields(Turn)}


def test_a_turn_does_not_grow_by_what_is_no_field() -> None:
    with pytest.raises(TypeError, match="no such field"):
        TURN.grown(buckets=3)
