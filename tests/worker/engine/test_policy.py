"""Who comes first, worked out by hand."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, cast

import pytest

from worker.decode.controller import DecodeState
from worker.engine.active import ActiveRequest
from worker.engine.policy import AGEING_PER_S, Entropic, FirstCome, Policy, Shortest, make_policy
from worker.protocol import DecodeControls

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.worker.engine.conftest import MakeRequest

NO_STATE = cast(DecodeState, None)
CONTEXT, VOCABULARY = 1_000, 100


class Waits:
    """Makes requests that have waited."""

    def __init__(self, make_request: MakeRequest) -> None:
        self._make = make_request
        self._number = 0

    def __call__(self, prompt: int = 10, max_tokens: int = 10, arrived_s: float = 0.0, **fields: Any) -> Any:
        request = self._make(f"r{self._number}", [5] * prompt, max_tokens, **fields)
        active = ActiveRequest(request, NO_STATE, lambda event: None, self._number, arrived_s)
        self._number += 1
        return active


@pytest.fixture
def waits(make_request: MakeRequest) -> Waits:
    return Waits(make_request)


def entropies(active: ActiveRequest, *values: float) -> None:
    for value in values:
        active.take(7, value)


def test_first_come_is_first_served_and_the_last_makes_room(waits: Waits) -> None:
    first, second, third = waits(900), waits(), waits()
    policy = FirstCome()
    assert policy.ordered([third, first, second], 5.0) == [first, second, third]
    assert policy.victim([third, first, second], 5.0) is third


def test_the_least_work_comes_first(waits: Waits) -> None:
    long_prompt, long_answer, short = waits(prompt=500), waits(max_tokens=300), waits()
    policy = Shortest(CONTEXT)
    assert policy.ordered([long_prompt, long_answer, short], 0.0) == [short, long_answer, long_prompt]
    assert policy.urgency(long_answer, 0.0) == pytest.approx(-(10 + 300) / CONTEXT)


def test_what_is_cached_and_what_was_written_is_no_work_any_more(waits: Waits) -> None:
    active = waits(prompt=100, max_tokens=50)
    active.num_cached = 100
    entropies(active, *[1.0] * 20)
    # One token waits for its step, thirty are expected.
    active.num_cached = 119
    assert Shortest(CONTEXT).urgency(active, 0.0) == pytest.approx(-(1 + 30) / CONTEXT)


def test_lengths_of_a_bucket_are_learnt(waits: Waits) -> None:
    policy = Shortest(CONTEXT)
    chatty, terse = DecodeControls(bucket=3), DecodeControls(bucket=0)
    for _ in range(50):
        done = waits(max_tokens=500, controls=terse)
        entropies(done, *[1.0] * 8)
        policy.observe(done)
    short, unknown = waits(max_tokens=500, controls=terse), waits(max_tokens=500, controls=chatty)
    assert policy.lengths.remaining(short) == pytest.approx(8.0)
    assert policy.lengths.remaining(unknown) == 500.0
    assert policy.ordered([unknown, short], 0.0) == [short, unknown]


@pytest.mark.parametrize("name", ["shortest", "entropic"])
def test_whoever_waits_long_enough_comes_before_everything_new(waits: Waits, name: Any) -> None:
    policy = make_policy(name, CONTEXT, VOCABULARY)
    large = waits(prompt=700, max_tokens=300, arrived_s=0.0)
    assert policy.ordered([waits(1, 1, arrived_s=0.0), large], 0.0)[-1] is large
    moments = [10.0**n for n in range(5)]
    assert any(policy.ordered([waits(1, 1, arrived_s=at), large], at)[0] is large for at in moments)


@pytest.mark.parametrize("name", ["fcfs", "shortest", "entropic"])
def test_a_longer_wait_never_lowers_the_urgency(waits: Waits, name: Any) -> None:
    policy = make_policy(name, CONTEXT, VOCABULARY)
    active = waits(prompt=300, max_tokens=200)
    urgencies = [policy.urgency(active, at) for at in range(0, 1_000, 50)]
    assert urgencies == sorted(urgencies)


def test_pi_is_the_formula(waits: Waits) -> None:
    active = waits(prompt=200, max_tokens=100, arrived_s=4.0)
    entropies(active, 3.0, 2.0, 2.5)
    active.num_cached = 202
    fall = 0.7 * (0.3 * 1.0) + 0.3 * 0.0
    numerator = fall / math.log(VOCABULARY) + AGEING_PER_S * 6.0 + 0.05
    denominator = 0.203 + 0.202 + 0.097
    assert Entropic(CONTEXT, VOCABULARY).urgency(active, 10.0) == pytest.approx(numerator / denominator)


def test_whoever_resolves_most_comes_first_and_a_converged_one_makes_room(waits: Waits) -> None:
    policy = Entropic(CONTEXT, VOCABULARY)
    falling, converged = waits(), waits()
    entropies(falling, 4.0, 3.0, 2.0, 1.0)
    entropies(converged, 0.1, 0.1, 0.1, 0.1)
    assert policy.ordered([converged, falling], 0.0) == [falling, converged]
    assert policy.victim([falling, converged], 0.0) is converged
    assert policy.urgency(converged, 0.0) > 0.0


@pytest.mark.parametrize("name", ["fcfs", "shortest", "entropic"])
def test_ties_go_by_arrival(waits: Waits, name: Any) -> None:
    policy: Policy = make_policy(name, CONTEXT, VOCABULARY)
    alike: Sequence[ActiveRequest] = [waits() for _ in range(5)]
    assert policy.ordered(reversed(alike), 3.0) == list(alike)
