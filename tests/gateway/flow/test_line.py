"""Who is next, worked out by hand."""

from __future__ import annotations

import asyncio

import pytest

from gateway.flow.line import Line, Waiter, Wanted


@pytest.fixture
def line() -> Line:
    return Line(ageing_s=10.0)


def waiter(bucket: int = 0, priority: int = 0, since_s: float = 0.0, model: str = "m") -> Waiter:
    return Waiter(Wanted(model, bucket, priority, since_s), asyncio.Future())


async def served_in_order(line: Line, now_s: float) -> list[Waiter]:
    order = []
    while len(line):
        order.append(next(line.heads(now_s)))
        line.serve(order[-1])
    return order


async def test_the_more_urgent_is_first_and_equals_come_in_the_order_of_arrival(line: Line) -> None:
    early, late, urgent = waiter(since_s=1.0), waiter(since_s=2.0), waiter(priority=5, since_s=3.0)
    for each in (early, late, urgent):
        line.join(each)
    assert await served_in_order(line, 4.0) == [urgent, early, late]


async def test_buckets_take_turns_however_many_wait_in_one(line: Line) -> None:
    many = [waiter(bucket=0, since_s=number / 100) for number in range(6)]
    few = [waiter(bucket=3, since_s=5.0 + number / 100) for number in range(2)]
    for each in (*many, *few):
        line.join(each)
    order = await served_in_order(line, 6.0)
    assert [each.wanted.bucket for each in order] == [0, 3, 0, 3, 0, 0, 0, 0]
    assert [each for each in order if each in many] == many


async def test_nobody_starves_behind_the_more_urgent(line: Line) -> None:
    patient = waiter(priority=0, since_s=0.0)
    line.join(patient)
    urgent = waiter(priority=2, since_s=19.0)
    line.join(urgent)
    assert next(line.heads(19.0)) is urgent
    line.leave(urgent)
    line.join(waiter(priority=2, since_s=29.0))
    # 30 s of waiting at 10 s a step are worth more than two steps.
    assert next(line.heads(30.0)) is patient


async def test_one_that_leaves_frees_its_place_and_no_name_stays_behind(line: Line) -> None:
    waiters = [waiter(model=f"made-up-{number}", bucket=number) for number in range(50)]
    for each in waiters:
        line.join(each)
    assert (len(line), line.num_in(7), line.longest, line.waits_for("made-up-7")) == (50, 1, 1, True)
    for each in waiters:
        line.leave(each)
        line.leave(each)
    assert (len(line), line.num_in(7), line.longest, line.waits_for("made-up-7")) == (0, 0, 0, False)
    assert (line._lanes, line._num_by_model, line._num_by_bucket) == ({}, {}, {})


async def test_the_last_of_the_least_urgent_goes_first_for_one_more_urgent(line: Line) -> None:
    old, young, urgent = waiter(since_s=1.0), waiter(since_s=2.0), waiter(priority=3)
    for each in (old, young, urgent, waiter(bucket=1, priority=-9)):
        line.join(each)
    assert line.last_below(0, 1) is young
    assert line.last_below(0, 0) is None
    assert (line.least_priority, line.num_before(0), line.num_before(3)) == (-9, 3, 1)
