"""Recorded and replayed steps, compared."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import pytest

from gateway.replay.comparison import TOLERANCES, Tolerance, compare
from worker.protocol import STEP_COLUMNS, StepRecord

TIGHT = Tolerance(entropy_nats=0.01, gravity=0.001, logprob=0.02, k_share=0.1, k_jump_share=0.0)


def step(token_id: int, entropy_nats: float, k: int = 10) -> StepRecord:
    gravity = 1 - entropy_nats / math.log(49_152)
    return StepRecord(
        token_id,
        -entropy_nats,
        entropy_nats,
        1 - gravity,
        gravity,
        1.0,
        0.5,
        k,
        1.0,
        0.8,
        0.0,
        0.5,
        1,
        0,
        7,
        1,
    )


def columns(steps: Sequence[StepRecord]) -> dict[str, list[float]]:
    return {name: [getattr(record, name) for record in steps] for name in STEP_COLUMNS}


RECORDED = [step(5, 1.0), step(6, 2.0), step(7, 3.0)]


def changed(index: int, **values: float) -> dict[str, list[float]]:
    """The recorded steps with one of them changed."""
    replayed = columns(RECORDED)
    for name, value in values.items():
        replayed[name][index] = value
    return replayed


def test_equal_steps_are_equal() -> None:
    comparison = compare(RECORDED, columns(RECORDED), TIGHT, with_tokens=True)
    assert comparison.is_equal
    assert comparison.largest == {"entropy_nats": 0.0, "gravity": 0.0, "k": 0.0, "logprob": 0.0}


@pytest.mark.parametrize(
    ("quantity", "inside", "outside"),
    [
        ("entropy_nats", 2.009, 2.011),
        ("gravity", RECORDED[1].gravity + 0.0009, RECORDED[1].gravity + 0.0011),
        ("logprob", -2.019, -2.021),
        ("k", 12, 13),  # one, and a tenth of ten
    ],
)
def test_each_quantity_has_its_tolerance(quantity: str, inside: float, outside: float) -> None:
    assert compare(RECORDED, changed(1, **{quantity: inside}), TIGHT, with_tokens=False).is_equal
    difference = compare(
        RECORDED, changed(1, **{quantity: outside}), TIGHT, with_tokens=False
    ).first_difference
    assert difference is not None
    assert (difference.step, difference.quantity, difference.replayed) == (1, quantity, outside)


def test_the_first_step_that_differs_is_named_and_the_largest_difference_is_over_all() -> None:
    steps = [RECORDED[0], step(6, 2.5), step(7, 4.0)]
    comparison = compare(RECORDED, columns(steps), TIGHT, with_tokens=False)
    assert comparison.first_difference is not None
    assert comparison.first_difference.step == 1
    assert comparison.largest["entropy_nats"] == pytest.approx(1.0)


def test_tokens_count_only_where_they_were_drawn_again() -> None:
    replayed = changed(1, token_id=99)
    assert compare(RECORDED, replayed, TIGHT, with_tokens=False).is_equal
    difference = compare(RECORDED, replayed, TIGHT, with_tokens=True).first_difference
    assert difference is not None
    assert (difference.step, difference.quantity, difference.recorded, difference.replayed) == (
        1,
        "token_id",
        6,
        99,
    )


def test_another_number_of_steps_differs_where_the_shorter_one_ends() -> None:
    difference = compare(RECORDED, columns(RECORDED[:2]), TIGHT, with_tokens=False).first_difference
    assert difference is not None
    assert (difference.step, difference.quantity) == (2, "number of steps")


def test_a_jump_to_the_largest_k_is_allowed_as_often_as_the_tolerance_says() -> None:
    recorded = [step(number, 1.0, k=40 if number == 0 else 10) for number in range(20)]
    loose = dataclasses.replace(TIGHT, k_jump_share=0.1)  # 2 of 20

    def jumping(*steps: int) -> dict[str, list[float]]:
        replayed = columns(recorded)
        for number in steps:
            replayed["k"][number] = 40
        return replayed

    two = compare(recorded, jumping(3, 5), loose, with_tokens=False)
    assert two.is_equal
    assert two.num_k_jumps == 2
    three = compare(recorded, jumping(3, 5, 7), loose, with_tokens=False)
    assert three.first_difference is not None
    assert three.first_difference.step == 3
    assert not compare(recorded, jumping(3), TIGHT, with_tokens=False).is_equal


def test_k_that_differs_otherwise_is_no_jump() -> None:
    recorded = [step(number, 1.0, k=40 if number == 0 else 10) for number in range(20)]
    replayed = columns(recorded)
    replayed["k"][3] = 25
    assert not compare(
        recorded, replayed, dataclasses.replace(TIGHT, k_jump_share=0.5), with_tokens=False
    ).is_equal


def test_nan_is_a_difference() -> None:
    assert not compare(RECORDED, changed(0, entropy_nats=math.nan), TIGHT, with_tokens=False).is_equal


def test_bf16_is_allowed_more_than_fp32() -> None:
    bf16, fp32 = TOLERANCES["bf16"], TOLERANCES["fp32"]
    assert all(getattr(bf16, f.name) > getattr(fp32, f.name) for f in dataclasses.fields(Tolerance))
