"""How long until a place is free, on a clock that the test turns."""

from __future__ import annotations

import pytest

from gateway.flow.service_rate import LONGEST_S, ServiceRate


class Clock:
    now_s = 50.0

    def __call__(self) -> float:
        return self.now_s


def test_two_ends_a_second_put_the_tenth_five_seconds_away() -> None:
    clock = Clock()
    rate = ServiceRate(clock)
    for _ in range(8):
        rate.observe()
        clock.now_s += 0.5
    assert rate.wait_s(10) == pytest.approx(5.0)
    assert rate.retry_after_s(10) == pytest.approx(5.0)
    assert rate.retry_after_s(1) == 1.0
    clock.now_s += 400.0  # nothing ends any more
    assert rate.wait_s(10) == pytest.approx(505.0)
    assert rate.retry_after_s(10) == LONGEST_S


def test_before_enough_is_known_nothing_is_promised() -> None:
    rate = ServiceRate(Clock())
    for _ in range(7):
        rate.observe()
    assert (rate.wait_s(5), rate.retry_after_s(5)) == (None, 1.0)
