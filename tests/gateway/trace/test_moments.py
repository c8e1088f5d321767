"""Times as people write them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from gateway.errors import TraceError
from gateway.trace.moments import as_moment, between, parse_moment

NOW = 1_800_000_000.0


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("15m", 900), ("1h", 3_600), ("1.5h", 5_400), ("2d", 172_800)]
)
def test_a_length_of_time_is_so_long_ago(text: str, seconds: float) -> None:
    assert parse_moment(text, NOW) == NOW - seconds


def test_a_moment_with_a_zone_is_that_moment() -> None:
    expected = datetime(2026, 11, 30, 9, 0, tzinfo=UTC).timestamp()
    assert parse_moment("2026-11-30T10:00+01:00", NOW) == expected


def test_a_moment_without_a_zone_is_this_machines() -> None:
    moment = parse_moment("2026-11-30T10:00", NOW)
    assert as_moment(moment) == "2026-11-30 10:00:00"


@pytest.mark.parametrize("text", ["", "yesterday", "1y", "-1h", "2026-13-01"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(TraceError, match="is no time"):
        parse_moment(text, NOW)


def test_what_is_not_given_is_no_bound() -> None:
    assert between(None, None) == (None, None)
