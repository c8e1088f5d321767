"""The circuit breaker, on a clock that the test turns."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from gateway.pool.breaker import MAX_COOLDOWN_S, Breaker


@dataclass
class Clock:
    now_s: float = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def breaker(clock: Clock) -> Breaker:
    return Breaker(num_failures=3, cooldown_s=5.0, clock=clock)


def fail(breaker: Breaker, times: int = 1) -> None:
    for _ in range(times):
        breaker.end("failure", is_trial=breaker.begin())


def test_failures_in_a_row_open_it(breaker: Breaker) -> None:
    fail(breaker, 2)
    assert breaker.allows
    fail(breaker)
    assert breaker.state == "open"
    assert not breaker.allows


def test_a_success_in_between_starts_the_count_again(breaker: Breaker) -> None:
    fail(breaker, 2)
    breaker.end("success", is_trial=breaker.begin())
    fail(breaker, 2)
    assert breaker.state == "closed"


def test_neutral_ends_neither_open_it_nor_clear_the_count(breaker: Breaker) -> None:
    for _ in range(50):
        breaker.end("neutral", is_trial=breaker.begin())
    assert breaker.allows
    fail(breaker, 2)
    breaker.end("neutral", is_trial=breaker.begin())
    fail(breaker)
    assert not breaker.allows


def test_after_the_cooldown_one_trial_passes_at_a_time(breaker: Breaker, clock: Clock) -> None:
    fail(breaker, 3)
    clock.now_s += 5.0
    assert breaker.state == "half_open"
    assert breaker.allows
    assert breaker.begin() is True
    assert not breaker.allows


def test_a_trial_that_succeeds_closes_it(breaker: Breaker, clock: Clock) -> None:
    fail(breaker, 3)
    clock.now_s += 5.0
    breaker.end("success", is_trial=breaker.begin())
    assert breaker.state == "closed"
    fail(breaker, 2)
    assert breaker.state == "closed"


def test_a_trial_that_fails_doubles_the_wait_up_to_the_limit(breaker: Breaker, clock: Clock) -> None:
    fail(breaker, 3)
    waits = []
    for _ in range(6):
        start_s = clock.now_s
        while not breaker.allows:
            clock.now_s += 0.5
        waits.append(clock.now_s - start_s)
        fail(breaker)
    assert waits == [5.0, 10.0, 20.0, 40.0, MAX_COOLDOWN_S, MAX_COOLDOWN_S]


def test_a_neutral_trial_leaves_room_for_the_next(breaker: Breaker, clock: Clock) -> None:
    fail(breaker, 3)
    clock.now_s += 5.0
    breaker.end("neutral", is_trial=breaker.begin())
    assert breaker.state == "half_open"
    assert breaker.allows


def test_a_request_from_before_it_opened_does_not_open_it_further(breaker: Breaker, clock: Clock) -> None:
    early = breaker.begin()
    fail(breaker, 3)
    clock.now_s += 4.9
    breaker.end("failure", is_trial=early)
    clock.now_s += 0.1
    assert breaker.allows


def test_one_silence_opens_it_and_a_silent_trial_doubles_the_pause(breaker: Breaker, clock: Clock) -> None:
    breaker.trip()
    breaker.trip()  # a second turn that waited there says nothing new
    assert (breaker.state, breaker.allows) == ("open", False)
    clock.now_s += 5.0
    assert (breaker.state, breaker.allows) == ("half_open", True)
    breaker.end("neutral", is_trial=breaker.begin())
    breaker.trip()
    clock.now_s += 9.9
    assert not breaker.allows
    clock.now_s += 0.2
    assert breaker.allows
    breaker.end("success", is_trial=breaker.begin())
    assert breaker.begin() is False
